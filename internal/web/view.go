package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// The names of the address's parameters.
const (
	paramGroup   = "group"
	paramStatus  = "status"
	paramQ       = "q"
	paramCursor  = "cursor"
	paramOrphans = "orphans"
	paramTime    = "time"
	paramRefresh = "refresh"
	paramTheme   = "theme"
	paramPart    = "part"
)

// view is everything that an address says. Writing it back gives the same address.
type view struct {
	// route is the path below the base path, escaped.
	route  string
	group  string
	status coordination.Status
	q      string
	cursor string
	// allOrphans shows resolved ones too.
	allOrphans bool
	localTime  bool
	paused     bool
}

func statuses() []coordination.Status {
	return []coordination.Status{
		coordination.StatusHealthy, coordination.StatusDraining, coordination.StatusStale,
		coordination.StatusTerminated, coordination.StatusUnknown,
	}
}

func parseView(route string, q url.Values) (view, error) {
	v := view{
		route: route, group: q.Get(paramGroup), status: coordination.Status(q.Get(paramStatus)),
		q: q.Get(paramQ), cursor: q.Get(paramCursor),
	}
	var wrong []coordination.FieldError
	choose := func(name, off, on string) bool {
		switch q.Get(name) {
		case "", off:
			return false
		case on:
			return true
		}
		wrong = append(wrong, coordination.FieldError{Pointer: "/" + name, Detail: "must be " + off + " or " + on})
		return false
	}
	v.allOrphans = choose(paramOrphans, "open", "all")
	v.localTime = choose(paramTime, "utc", "local")
	v.paused = choose(paramRefresh, "on", "off")
	if v.status != "" && !slices.Contains(statuses(), v.status) {
		wrong = append(wrong, coordination.FieldError{
			Pointer: "/status", Detail: "must be healthy, draining, stale, terminated or unknown",
		})
	}
	if len(wrong) > 0 {
		return v, &coordination.InvalidError{Fields: wrong}
	}
	return v, nil
}

// values are the parameters that differ from the defaults.
func (v view) values() url.Values {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set(paramGroup, v.group)
	set(paramStatus, string(v.status))
	set(paramQ, v.q)
	set(paramCursor, v.cursor)
	if v.allOrphans {
		q.Set(paramOrphans, "all")
	}
	v.modes(q)
	return q
}

// modes are the parameters that every address keeps: how to look, not what at.
func (v view) modes(q url.Values) {
	if v.localTime {
		q.Set(paramTime, "local")
	}
	if v.paused {
		q.Set(paramRefresh, "off")
	}
}

func address(base, route string, q url.Values) string {
	if enc := q.Encode(); enc != "" {
		return base + route + "?" + enc
	}
	return base + route
}

func (s *site) url(v view) string { return address(s.BasePath, v.route, v.values()) }

// partURL is where one part of the view is fetched from.
func (s *site) partURL(v view, part string) string {
	q := v.values()
	q.Set(paramPart, part)
	return address(s.BasePath, v.route, q)
}

// homeURL is the overview without filters.
func (s *site) homeURL(v view) string {
	q := url.Values{}
	v.modes(q)
	return address(s.BasePath, "/", q)
}

// themeURL sets the theme and comes back to the view.
func (s *site) themeURL(v view, theme string) string {
	q := v.values()
	q.Set(paramTheme, theme)
	return address(s.BasePath, v.route, q)
}

// peerURL is a peer's page. An id of dots only would be taken for a relative path, by browsers and proxies alike,
// whether escaped or not, so it is searched for instead.
func (s *site) peerURL(v view, group, id string) string {
	q := url.Values{}
	v.modes(q)
	if group != coordination.DefaultGroup {
		q.Set(paramGroup, group)
	}
	if id == "." || id == ".." {
		q.Set(paramQ, id)
		return address(s.BasePath, "/", q)
	}
	return address(s.BasePath, peerRoute(id), q)
}

func peerRoute(id string) string { return "/peers/" + url.PathEscape(id) }

func (v view) peerQuery() service.PeerQuery {
	q := service.PeerQuery{Page: service.Page{Limit: peersPerPage, Cursor: v.cursor}, Group: v.group, Q: v.q}
	if v.status != "" {
		q.Status = []coordination.Status{v.status}
	}
	return q
}

const themeCookie = "coordsvc_theme"

// theme is light, dark or "".
func theme(r *http.Request) string {
	c, err := r.Cookie(themeCookie)
	if err != nil || (c.Value != "light" && c.Value != "dark") {
		return ""
	}
	return c.Value
}

// switchTheme keeps the theme that the address asks for and sends the reader to the address without it.
// It reports whether it answered.
func (s *site) switchTheme(w http.ResponseWriter, r *http.Request, v view) bool {
	want := r.URL.Query().Get(paramTheme)
	if want == "" {
		return false
	}
	path := s.BasePath
	if path == "" {
		path = "/"
	}
	//nolint:gosec // G124: a theme is no secret, and plain http is the default.
	c := &http.Cookie{Name: themeCookie, Value: want, Path: path, MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if want != "light" && want != "dark" {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(w, c)
	w.Header().Set("Location", s.url(v))
	w.WriteHeader(http.StatusSeeOther)
	return true
}
