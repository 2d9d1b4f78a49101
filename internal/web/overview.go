package web

import (
	"net/http"

	"github.com/a-h/templ"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

// Page sizes keep a first paint, everything included, below 150 KiB.
const (
	peersPerPage   = 50
	orphansPerPage = 20
	eventsPerPage  = 15
)

// productTitle is the title of a page without one of its own.
const productTitle = "coordsvc"

func (s *site) overview(w http.ResponseWriter, r *http.Request) {
	v, err := parseView("/", r.URL.Query())
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	if s.switchTheme(w, r, v) {
		return
	}
	c, err := s.overviewComponent(r, v)
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	s.render(w, r, http.StatusOK, c)
}

// overviewComponent is the page, or the one part of it that the address asks for.
func (s *site) overviewComponent(r *http.Request, v view) (templ.Component, error) {
	sum := s.Service.Summary()
	switch part := r.URL.Query().Get(paramPart); part {
	case "":
		o, err := s.overviewModel(r, v, sum)
		return views.OverviewPage(o), err
	case "body":
		o, err := s.overviewModel(r, v, sum)
		return views.BodyPart(o), err
	case "header":
		return views.HeaderPart(s.page(r, v, sum, productTitle)), nil
	case "glance":
		return views.GlancePart(s.glance(v, sum, productTitle)), nil
	case "peers":
		t, err := s.peers(v, sum)
		return views.PeersPart(t), err
	case "orphans":
		l, err := s.orphans(v, sum, "")
		return views.OrphansPart(l), err
	case "events":
		l, err := s.events(v, sum, "")
		return views.EventsPart(l), err
	default:
		return nil, unknownPart(part)
	}
}

func unknownPart(part string) error {
	return &coordination.InvalidError{Fields: []coordination.FieldError{
		{Pointer: "/" + paramPart, Detail: "this page has no part " + part},
	}}
}

func (s *site) overviewModel(r *http.Request, v view, sum service.Summary) (views.Overview, error) {
	o := views.Overview{
		Page: s.page(r, v, sum, productTitle), Glance: s.glance(v, sum, productTitle), Filter: s.filter(v, sum),
	}
	if sum.TotalPeers == 0 && sum.OpenOrphans == 0 && v.group == "" && v.q == "" && v.status == "" {
		o.Empty = &views.Empty{Part: s.partURL(v, "body"), Curl: s.curl(r)}
		return o, nil
	}
	var err error
	if o.Peers, err = s.peers(v, sum); err != nil {
		return o, err
	}
	if o.Orphans, err = s.orphans(v, sum, ""); err != nil {
		return o, err
	}
	o.Events, err = s.events(v, sum, "")
	return o, err
}

// scope is what the counts cover: one group, or all.
type scope struct {
	peers                   map[coordination.Status]int
	total, overdue, orphans int
}

func scopeOf(sum service.Summary, group string) scope {
	if group == "" {
		return scope{sum.Peers, sum.TotalPeers, sum.Overdue, sum.OpenOrphans}
	}
	for _, g := range sum.Groups {
		if g.Group == group {
			total := 0
			for _, n := range g.Peers {
				total += n
			}
			return scope{g.Peers, total, g.Overdue, g.OpenOrphans}
		}
	}
	return scope{}
}

func (s *site) glance(v view, sum service.Summary, title string) views.Glance {
	c := scopeOf(sum, v.group)
	g := views.Glance{
		Part: s.partURL(v, "glance"), DocTitle: docTitle(sum.OpenOrphans, title), OpenOrphans: sum.OpenOrphans,
		Summary: summaryText(c), Banners: s.banners(sum, v.group),
	}
	all := view{route: "/", group: v.group, localTime: v.localTime, paused: v.paused}
	g.Tiles = append(g.Tiles, tile("all", "Peers", c.total, s.url(all), v.status == "" && v.route == "/"))
	for _, st := range statuses() {
		to := all
		to.status = st
		g.Tiles = append(g.Tiles, tile(string(st), statusLabel(st), c.peers[st], s.url(to), v.status == st))
		if st == coordination.StatusTerminated && c.overdue > 0 {
			g.Tiles[len(g.Tiles)-1].Note = grouped(c.overdue) + " overdue"
		}
	}
	orphans := tile("orphan", "Orphans", c.orphans, "#part-orphans", false)
	if sum.OpenClaims > 0 && v.group == "" {
		orphans.Note = grouped(sum.OpenClaims) + " claimed"
	}
	g.Tiles = append(g.Tiles, orphans)
	return g
}

func tile(key, label string, n int, href string, active bool) views.Tile {
	return views.Tile{Key: key, Label: label, Count: grouped(n), Zero: n == 0, Href: href, Active: active}
}

// summaryText is for a reader who hears the page.
func summaryText(c scope) string {
	return counted(c.total, "peer", "peers") + ": " +
		grouped(c.peers[coordination.StatusHealthy]) + " healthy, " +
		grouped(c.peers[coordination.StatusDraining]) + " draining, " +
		grouped(c.peers[coordination.StatusStale]) + " stale. " +
		counted(c.orphans, "open orphan", "open orphans") + "."
}

func statusLabel(st coordination.Status) string {
	switch st {
	case coordination.StatusHealthy:
		return "Healthy"
	case coordination.StatusDraining:
		return "Draining"
	case coordination.StatusStale:
		return "Stale"
	case coordination.StatusTerminated:
		return "Terminated"
	case coordination.StatusUnknown:
		return "Unknown"
	}
	return string(st)
}

func (s *site) filter(v view, sum service.Summary) views.Filter {
	f := views.Filter{Action: s.BasePath + "/", Q: v.q}
	f.Groups = []views.Choice{{Label: "All groups", Selected: v.group == ""}}
	known := v.group == ""
	for _, g := range sum.Groups {
		f.Groups = append(f.Groups, views.Choice{Value: g.Group, Label: g.Group, Selected: g.Group == v.group})
		known = known || g.Group == v.group
	}
	if !known {
		f.Groups = append(f.Groups, views.Choice{Value: v.group, Label: v.group, Selected: true})
	}
	f.Status = []views.Choice{{Label: "All statuses", Selected: v.status == ""}}
	for _, st := range statuses() {
		f.Status = append(f.Status, views.Choice{Value: string(st), Label: statusLabel(st), Selected: st == v.status})
	}
	rest := view{route: "/", allOrphans: v.allOrphans, localTime: v.localTime, paused: v.paused}.values()
	for _, name := range []string{paramOrphans, paramTime, paramRefresh} {
		if rest.Has(name) {
			f.Keep = append(f.Keep, views.Hidden{Name: name, Value: rest.Get(name)})
		}
	}
	if v.group != "" || v.status != "" || v.q != "" {
		f.Clear = s.homeURL(v)
	}
	return f
}

// curl is a command that makes the first peer appear.
func (s *site) curl(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return "curl -X POST " + scheme + "://" + safeHost(r.Host) + s.BasePath + "/v1/heartbeats \\\n" +
		"  -H 'Content-Type: application/json' \\\n" +
		`  -d '{"instance_id": "worker-1", "subscriptions": ["orders"]}'`
}

// safeHost lets only characters of a host and port into a command that somebody will paste into a shell.
func safeHost(host string) string {
	if host == "" {
		return "127.0.0.1:8080"
	}
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == ':', c == '[', c == ']':
		default:
			return "127.0.0.1:8080"
		}
	}
	return host
}
