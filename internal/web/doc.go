// Package web is the dashboard: server-rendered pages, the fragments that keep them current, and one stream
// that says when to fetch them.
//
// A page is complete without script and reloads itself every 15 s then. With script, one EventSource a tab carries
// invalidations (a scope and a revision, never rows); the parts of the page that depend on the scope are fetched again
// from the current address with `part=…` and If-None-Match, at most one a second each, and morphed in place.
//
// What must hold:
//   - Reading only: nothing here changes the service's state. The one thing kept is the theme, in a cookie.
//   - Everything that a view depends on stands in its address: group, status, search, page, time zone, pause.
//   - Equal pictures give equal bytes: no per-request value enters a body. The server's clock travels in a header
//     and in the stream.
//   - Every answer carries a Content-Security-Policy that allows this server's files and nothing inline.
//
// When a part of the service is away, its pages still answer; they name the part and the reason. A reader that
// cannot keep up with the stream is cut off after a write deadline, and beyond MaxStreams readers are refused with 503:
// their pages poll instead.
//
// Not here: what the numbers mean (service, coordination), how they look (views, web/static), forms that act.
package web
