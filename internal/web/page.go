package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coordsvc/coordsvc/internal/service"
	"github.com/coordsvc/coordsvc/internal/web/views"
)

// page is what every page has around its content.
func (s *site) page(r *http.Request, v view, sum service.Summary, title string) views.Page {
	utc, local, on, off := v, v, v, v
	utc.localTime, local.localTime, on.paused, off.paused = false, true, false, true
	return views.Page{
		Title:       docTitle(sum.OpenOrphans, title),
		Theme:       theme(r),
		LocalTime:   v.localTime,
		RefreshOn:   !v.paused,
		OpenOrphans: sum.OpenOrphans,
		Assets:      s.assets.links(),
		Links: views.PageLinks{
			Home: s.homeURL(v), Docs: s.BasePath + "/docs", Stream: s.BasePath + "/live",
			RefreshOn: s.url(on), RefreshOff: s.url(off),
			TimeUTC: s.url(utc), TimeLocal: s.url(local),
			ThemeSystem: s.themeURL(v, "system"), ThemeLight: s.themeURL(v, "light"), ThemeDark: s.themeURL(v, "dark"),
			HeaderPart: s.partURL(v, "header"),
		},
		Header: s.header(sum),
	}
}

func docTitle(orphans int, title string) string {
	if orphans == 0 {
		return title
	}
	return "(" + strconv.Itoa(orphans) + ") " + title
}

func (s *site) header(sum service.Summary) views.Header {
	h := views.Header{
		Leader: sum.Leader.Identity, Epoch: sum.Leader.Epoch, Replica: sum.Leader.Replica,
		Following: sum.Leader.Identity != "" && !sum.Leader.IsLeader, Version: s.Version,
	}
	if h.Replica == "" {
		h.Replica = s.Identity
	}
	for _, p := range sum.Parts {
		h.Parts = append(h.Parts, views.Part{Name: p.Name, Kind: p.Kind, Reason: p.Reason, Ready: p.Ready})
	}
	return h
}

// banners are what a reader must know before the numbers, the loudest first. group narrows them; "" is all.
func (s *site) banners(sum service.Summary, group string) []views.Banner {
	list := partBanners(sum)
	for _, g := range sum.Groups {
		if group == "" || group == g.Group {
			list = append(list, s.groupBanners(sum.Now, g)...)
		}
	}
	if sum.GraceUntil.After(sum.Now) {
		list = append(list, views.Banner{
			ID: "b-grace", Tone: views.ToneInfo, Title: "The service was interrupted",
			Text: "Silence in that time was its own, not the peers'. Nobody turns stale before", Until: until(sum.Now, sum.GraceUntil),
		})
	}
	return list
}

func until(now, t time.Time) *views.Instant {
	i := clockOf(now, t)
	return &i
}

func partBanners(sum service.Summary) []views.Banner {
	var list []views.Banner
	if sum.Leader.Identity == "" {
		list = append(list, views.Banner{
			ID: "b-leader", Tone: views.ToneAlert, Title: "Nobody leads",
			Text: "Statuses are current. Orphans, conflicts and webhooks wait for a leader.",
		})
	}
	for _, p := range sum.Parts {
		if !p.Ready {
			list = append(list, views.Banner{
				ID: elementID("b", p.Name), Tone: views.ToneAlert,
				Title: strings.ToUpper(p.Name[:min(1, len(p.Name))]) + p.Name[min(1, len(p.Name)):] + " unavailable", Text: p.Reason,
			})
		}
	}
	return list
}

func (s *site) groupBanners(now time.Time, g service.GroupSummary) []views.Banner {
	var list []views.Banner
	if !g.MassStaleUntil.IsZero() {
		list = append(list, views.Banner{
			ID: elementID("b", "mass", g.Group), Tone: views.ToneWarn, Title: "Mass staleness in " + g.Group,
			Text:  "Half of its peers or more fell silent at once, which points at the network. Orphan events are held until",
			Until: until(now, g.MassStaleUntil),
		})
	}
	if g.Conflicts > 0 {
		list = append(list, s.conflictBanner(g))
	}
	return list
}

const conflictsNamed = 3

func (s *site) conflictBanner(g service.GroupSummary) views.Banner {
	var lines []string
	for i, c := range s.Service.Conflicts(g.Group) {
		if i == conflictsNamed {
			lines = append(lines, "…")
			break
		}
		lines = append(lines, c.Subscription+" by "+some(c.Peers, conflictsNamed))
	}
	return views.Banner{
		ID: elementID("b", "conflict", g.Group), Tone: views.ToneWarn,
		Title: counted(g.Conflicts, "subscription", "subscriptions") + " processed twice in " + g.Group,
		Text:  strings.Join(lines, "; "),
	}
}
