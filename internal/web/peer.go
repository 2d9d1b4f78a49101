package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

// peer is the page of one peer; the group of the address is the default one unless it says otherwise.
func (s *site) peer(w http.ResponseWriter, r *http.Request, id string) {
	v, err := parseView(peerRoute(id), r.URL.Query())
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	if s.switchTheme(w, r, v) {
		return
	}
	key := coordination.PeerKey{Group: v.group, InstanceID: id}
	if key.Group == "" {
		key.Group = coordination.DefaultGroup
	}
	p, err := s.Service.Peer(key)
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	c, err := s.peerComponent(r, v, &p)
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, c)
}

func (s *site) peerComponent(r *http.Request, v view, p *service.Peer) (templ.Component, error) {
	sum := s.Service.Summary()
	title := p.InstanceID + " · " + productTitle
	// The lists below are narrowed to the peer's group, named or not.
	in := v
	in.group = p.Group
	switch part := r.URL.Query().Get(paramPart); part {
	case "":
		return s.peerPage(r, v, in, sum, p, title)
	case "header":
		return views.HeaderPart(s.page(r, v, sum, title)), nil
	case "glance":
		return views.GlancePart(s.peerGlance(in, sum, title)), nil
	case "peer":
		return views.PeerPart(s.peerDetail(v, sum, p)), nil
	case "orphans":
		l, err := s.orphans(in, sum, p.InstanceID)
		return views.OrphansPart(l), err
	case "events":
		l, err := s.events(in, sum, p.InstanceID)
		return views.EventsPart(l), err
	default:
		return nil, unknownPart(part)
	}
}

func (s *site) peerPage(r *http.Request, v, in view, sum service.Summary, p *service.Peer, title string) (templ.Component, error) {
	orphans, err := s.orphans(in, sum, p.InstanceID)
	if err != nil {
		return nil, err
	}
	events, err := s.events(in, sum, p.InstanceID)
	if err != nil {
		return nil, err
	}
	return views.DetailPage(views.Detail{
		Page: s.page(r, v, sum, title), Glance: s.peerGlance(in, sum, title), Peer: s.peerDetail(v, sum, p),
		Orphans: orphans, Events: events,
	}), nil
}

// peerGlance is the banners without the counts.
func (s *site) peerGlance(v view, sum service.Summary, title string) views.Glance {
	g := s.glance(v, sum, title)
	g.Tiles, g.Summary = nil, ""
	return g
}

func (s *site) peerDetail(v view, sum service.Summary, p *service.Peer) views.PeerDetail {
	d := views.PeerDetail{
		Part: s.partURL(v, "peer"), Row: s.peerRow(v, sum, p), Subs: p.Subscriptions,
		Spark: sparkline(p.Intervals, timeoutOf(sum, p.Group)), Facts: facts(sum.Now, p),
	}
	if d.Spark != nil {
		d.Intervals = d.Spark.Label + ", timeout " + length(timeoutOf(sum, p.Group)) + "; newest at the right."
	}
	for name, value := range p.Labels {
		d.Labels = append(d.Labels, views.Fact{Name: name, Text: value})
	}
	slices.SortFunc(d.Labels, func(a, b views.Fact) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	if p.Shutdown != nil {
		d.Metadata = indented(p.Shutdown.Metadata)
	}
	return d
}

func facts(now time.Time, p *service.Peer) []views.Fact {
	list := []views.Fact{{Name: "Last heartbeat", Text: "never"}}
	if !p.LastSeen.IsZero() {
		list[0] = views.Fact{Name: "Last heartbeat", At: optional(ageOf(now, p.LastSeen), p.LastSeen), Age: true}
	}
	list = append(list, views.Fact{Name: "First seen", At: optional(clockOf(now, p.FirstSeen), p.FirstSeen)})
	if p.Incarnation != "" {
		list = append(list, views.Fact{Name: "Incarnation", Text: p.Incarnation})
	}
	if hb := p.LastHeartbeat; hb != nil {
		list = append(list,
			views.Fact{Name: "In flight", Text: strconv.FormatInt(hb.InFlightCount, 10)},
			views.Fact{Name: "Load", Text: load(hb.LoadFactor).Text})
	}
	if p.ClockSkew != nil {
		list = append(list, views.Fact{Name: "Clock skew", Text: signed(*p.ClockSkew)})
	}
	if sd := p.Shutdown; sd != nil {
		list = append(list,
			views.Fact{Name: "Shutdown announced", At: optional(clockOf(now, sd.ReceivedAt), sd.ReceivedAt)},
			views.Fact{Name: "Intent", Text: intent(sd.Intent)},
			views.Fact{Name: "Deadline", At: optional(clockOf(now, sd.Deadline), sd.Deadline)})
	}
	return list
}

// indented is a JSON object for reading, "" when it is empty.
func indented(raw []byte) string {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || bytes.Equal(trimmed, []byte("{}")) {
		return ""
	}
	var b bytes.Buffer
	if err := json.Indent(&b, trimmed, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
