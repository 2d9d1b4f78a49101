package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/service"
)

// events answers GET /v1/events: a page, or the stream for those who accept nothing but that.
func (a *API) events(w http.ResponseWriter, r *http.Request, params apigen.ListEventsParams) error {
	query := service.EventQuery{
		Types: value(params.Type), Group: value(params.Group), InstanceID: value(params.InstanceID),
	}
	if wantsStream(r.Header.Values("Accept")) {
		after, err := resumePosition(params)
		if err != nil {
			return err
		}
		return a.stream(w, r, query, after)
	}
	var err error
	if query.Page, err = page(params.Limit, params.Cursor); err != nil {
		return err
	}
	if o := params.Order; o != nil {
		if !o.Valid() {
			return invalid("/order", "must be newest or oldest")
		}
		query.OldestFirst = *o == apigen.Oldest
	}
	return a.eventPage(w, query)
}

func (a *API) eventPage(w http.ResponseWriter, query service.EventQuery) error {
	// The head is read first: what comes in between is on the page and once more in the stream, never in neither.
	head := a.service.Head()
	list, err := a.service.Events(query)
	if err != nil {
		return err
	}
	return a.sendJSON(w, http.StatusOK, apigen.EventList{
		Items: each(list.Items, eventBody), NextCursor: textOrNull(list.NextCursor), Total: list.Total, Head: head.String(),
	})
}

// eventBody is the event as it was committed.
func eventBody(e service.JournalEntry) json.RawMessage { return e.Raw }

// wantsStream tells whether the client accepts an event stream and does not say that it would rather have JSON.
func wantsStream(accept []string) bool {
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		kind, params, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/event-stream":
			return strings.ReplaceAll(params, " ", "") != "q=0"
		case "application/json":
			return false
		}
	}
	return false
}

// resumePosition is where the client left off, nil when it starts anew.
func resumePosition(params apigen.ListEventsParams) (*service.Position, error) {
	if id := value(params.LastEventIDHeader); id != "" {
		return parsePosition("/Last-Event-ID", id)
	}
	if id := value(params.LastEventID); id != "" {
		return parsePosition("/last_event_id", id)
	}
	return nil, nil
}

func parsePosition(pointer, text string) (*service.Position, error) {
	p, err := service.ParsePosition(text)
	if err != nil {
		return nil, invalid(pointer, "is not a position of this service's stream (<revision>-<position>)")
	}
	return &p, nil
}
