package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// serveHeartbeat answers POST /v1/heartbeats without router and strict server.
func (a *API) serveHeartbeat(w *recorder, r *http.Request) {
	w.route = heartbeatPath
	if err := a.origins.Check(r); err != nil {
		a.refuseCrossSite(w, r, err)
		return
	}
	if err := a.heartbeat(w, r); err != nil {
		a.refuse(w, r, err)
	}
}

func (a *API) heartbeat(w http.ResponseWriter, r *http.Request) error {
	buf := a.bodies.take()
	defer a.bodies.put(buf)
	if err := a.bodies.read(w, r, a.bodies.limit, buf); err != nil {
		return err
	}
	var hb coordination.Heartbeat
	if err := buf.reader.decodeHeartbeat(buf.data, &hb); err != nil {
		return err
	}
	reply, err := a.service.Heartbeat(r.Context(), hb)
	if err != nil {
		return err
	}
	// Everything decoded has been copied out of the buffer, so that the answer can use it.
	buf.data, err = appendHeartbeatReply(buf.data[:0], &reply)
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = a.jsonType
	if _, err := w.Write(buf.data); err != nil {
		a.log.DebugContext(r.Context(), "heartbeat not answered", "error", err)
	}
	return nil
}

func (a *API) heartbeatBatch(w http.ResponseWriter, r *http.Request) error {
	buf := a.bodies.take()
	defer a.bodies.put(buf)
	if err := a.bodies.read(w, r, a.bodies.batchLimit, buf); err != nil {
		return err
	}
	items, err := buf.reader.decodeBatch(buf.data, a.opts.MaxBatch)
	if err != nil {
		return err
	}
	reply := apigen.HeartbeatBatchReply{Rejected: []apigen.RejectedHeartbeat{}}
	for i, err := range a.applyBatch(r, items) {
		if err == nil {
			reply.Accepted++
			continue
		}
		reply.Rejected = append(reply.Rejected, apigen.RejectedHeartbeat{Index: i, Problem: a.answerTo(inBatch(i, err)).problem})
	}
	return a.sendJSON(w, http.StatusOK, reply)
}

// applyBatch hands on the heartbeats that can be read and says for each what became of it.
func (a *API) applyBatch(r *http.Request, items []batchItem) []error {
	fates := make([]error, len(items))
	hbs := make([]coordination.Heartbeat, 0, len(items))
	at := make([]int, 0, len(items))
	for i := range items {
		if fates[i] = items[i].err; fates[i] == nil {
			hbs, at = append(hbs, items[i].hb), append(at, i)
		}
	}
	for i, item := range a.service.HeartbeatBatch(r.Context(), hbs) {
		fates[at[i]] = item.Err
	}
	return fates
}

// inBatch moves an error's pointers to where the heartbeat stands in the batch.
func inBatch(index int, err error) error {
	var wrong *coordination.InvalidError
	if !errors.As(err, &wrong) {
		return err
	}
	moved := &coordination.InvalidError{Fields: make([]coordination.FieldError, len(wrong.Fields))}
	for i, f := range wrong.Fields {
		moved.Fields[i] = coordination.FieldError{Pointer: "/heartbeats/" + strconv.Itoa(index) + f.Pointer, Detail: f.Detail}
	}
	return moved
}

// appendHeartbeatReply is json.Marshal(heartbeatReply(reply)), several times as fast for the usual reply, which
// has no lists.
func appendHeartbeatReply(dst []byte, reply *service.HeartbeatReply) ([]byte, error) {
	if len(reply.Claims) > 0 || len(reply.Assignments) > 0 || len(reply.Directives) > 0 || !plain(reply.Leader) {
		raw, err := json.Marshal(heartbeatReply(reply))
		if err != nil {
			return nil, fmt.Errorf("encode a heartbeat's answer: %w", err)
		}
		return append(dst, raw...), nil
	}
	dst = append(dst, `{"assignments":[],"claims":[],"directives":[],"heartbeat_timeout_seconds":`...)
	dst = appendSeconds(dst, reply.HeartbeatTimeout)
	if reply.Leader == "" {
		dst = append(dst, `,"leader":null`...)
	} else {
		dst = append(dst, `,"leader":"`...)
		dst = append(append(dst, reply.Leader...), '"')
	}
	dst = append(dst, `,"next_heartbeat_seconds":`...)
	dst = appendSeconds(dst, reply.NextHeartbeat)
	dst = append(dst, `,"outcome":"`...)
	dst = append(dst, reply.Outcome...)
	dst = append(dst, `","received_at":"`...)
	dst = shown(reply.ReceivedAt).AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","status":"`...)
	dst = append(dst, reply.Status...)
	return append(dst, `"}`...), nil
}

// appendSeconds writes a duration as json.Marshal writes its seconds; intervals are neither tiny nor huge.
func appendSeconds(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, d.Seconds(), 'f', -1, 64)
}

// plain tells whether a string needs no escapes in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

func heartbeatReply(reply *service.HeartbeatReply) apigen.HeartbeatReply {
	return apigen.HeartbeatReply{
		Status:                  apigen.PeerStatus(reply.Status),
		Outcome:                 apigen.HeartbeatReplyOutcome(reply.Outcome),
		ReceivedAt:              shown(reply.ReceivedAt),
		HeartbeatTimeoutSeconds: reply.HeartbeatTimeout.Seconds(),
		NextHeartbeatSeconds:    reply.NextHeartbeat.Seconds(),
		Leader:                  textOrNull(reply.Leader),
		Claims:                  each(reply.Claims, claim),
		Assignments:             each(reply.Assignments, assignment),
		Directives:              each(reply.Directives, directive),
	}
}

func directive(d service.Directive) apigen.Directive {
	return apigen.Directive{Type: d.Type, Reason: textOrNull(d.Reason), RequestedAt: orNull(d.RequestedAt)}
}
