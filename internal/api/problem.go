package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
)

const problemType = "urn:coordsvc:problem:"

// answer is a problem together with what its response needs besides the body.
type answer struct {
	problem    apigen.Problem
	retryAfter time.Duration
	allow      string
}

func newAnswer(status int, slug, title, detail string) answer {
	a := answer{problem: apigen.Problem{Type: problemType + slug, Title: title, Status: status}}
	if detail != "" {
		a.problem.Detail = &detail
	}
	return a
}

func (a answer) withErrors(fields []apigen.FieldError) answer {
	if len(fields) > 0 {
		a.problem.Errors = &fields
	}
	return a
}

// answerTo says how an error is told to the client.
func (a *API) answerTo(err error) answer {
	var (
		broken  *brokenError
		types   *typeError
		media   *mediaError
		large   *http.MaxBytesError
		handled *echo.HTTPError
	)
	switch {
	case errors.As(err, &broken):
		fields := []apigen.FieldError{{Pointer: broken.pointer, Detail: broken.detail}}
		return newAnswer(http.StatusBadRequest, "malformed-json", "The body is not valid JSON", broken.detail).withErrors(fields)
	case errors.As(err, &types):
		return newAnswer(http.StatusBadRequest, "wrong-type", "A value has the wrong type", types.Error()).withErrors(types.fields)
	case errors.As(err, &media):
		return newAnswer(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body must be JSON", media.detail)
	case errors.As(err, &large):
		return newAnswer(http.StatusRequestEntityTooLarge, "too-large", "The body is too large", fmt.Sprintf("The limit is %d bytes.", large.Limit))
	case errors.As(err, &handled):
		return answerToRouter(handled)
	}
	for i := range a.kinds {
		if errors.Is(err, a.kinds[i].is) {
			return a.kinds[i].answer(err)
		}
	}
	return newAnswer(http.StatusInternalServerError, "internal", titleInternal, "The cause is in the service's log.")
}

func (k *kind) answer(err error) answer {
	detail := k.detail
	if detail == "" {
		detail = err.Error()
	}
	out := newAnswer(k.status, k.slug, k.title, detail)
	out.retryAfter = k.retryAfter
	var wrong *coordination.InvalidError
	if errors.As(err, &wrong) {
		out = newAnswer(k.status, k.slug, k.title, fieldsText(wrong.Fields)).withErrors(fieldErrors(wrong.Fields))
	}
	var held *coordination.HeldError
	if errors.As(err, &held) {
		if held.Holder != "" {
			out.problem.Holder = &held.Holder
		}
		out.retryAfter = max(out.retryAfter, held.RetryAfter)
	}
	return out
}

// fieldsText says in one line what is wrong with all fields.
func fieldsText(fields []coordination.FieldError) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = strings.TrimSpace(f.Pointer + " " + f.Detail)
	}
	return strings.Join(parts, "; ")
}

func fieldErrors(fields []coordination.FieldError) []apigen.FieldError {
	out := make([]apigen.FieldError, len(fields))
	for i, f := range fields {
		out[i] = apigen.FieldError{Pointer: f.Pointer, Detail: f.Detail}
	}
	return out
}

// answerToRouter translates what echo and the generated wrapper say: no such route, method or readable parameter.
func answerToRouter(err *echo.HTTPError) answer {
	switch err.Code {
	case http.StatusNotFound:
		return newAnswer(http.StatusNotFound, "no-such-path", "No such path", "See /docs for the paths that there are.")
	case http.StatusMethodNotAllowed:
		return newAnswer(http.StatusMethodNotAllowed, "method-not-allowed", "The path does not know this method", "The Allow header names those it knows.")
	case http.StatusBadRequest:
		name := badParameter(fmt.Sprint(err.Message))
		if name == "" {
			return newAnswer(http.StatusBadRequest, "bad-parameter", "A parameter cannot be read", "See /docs for what the path takes.")
		}
		const detail = "cannot be read, or stands more than once; see /docs for what it takes"
		return newAnswer(http.StatusBadRequest, "bad-parameter", "A parameter cannot be read", name+" "+detail).
			withErrors([]apigen.FieldError{{Pointer: "/" + name, Detail: detail}})
	}
	return newAnswer(http.StatusInternalServerError, "internal", titleInternal, "The cause is in the service's log.")
}

// badParameter finds the parameter's name in the generated wrapper's message.
func badParameter(message string) string {
	for _, prefix := range []string{"Invalid format for parameter ", "Expected one value for "} {
		if rest, ok := strings.CutPrefix(message, prefix); ok {
			return rest[:strings.IndexAny(rest+":", ":,")]
		}
	}
	return ""
}

// write sends the problem.
func (a answer) write(w http.ResponseWriter) error {
	body, err := json.Marshal(a.problem)
	if err != nil {
		return fmt.Errorf("encode a problem: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(a.retryAfter.Seconds()))))
	}
	if a.allow != "" {
		h.Set("Allow", a.allow)
	}
	w.WriteHeader(a.problem.Status)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write a problem: %w", err)
	}
	return nil
}
