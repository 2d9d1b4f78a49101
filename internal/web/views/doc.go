// Package views renders the dashboard's HTML: templ components over view models, and nothing else.
//
// It knows no type of the service. package web turns what the service answers into the models here, with every
// text, link and class decided; a component only places them. So a page can be rendered, compared with its golden
// and looked at without a service.
//
// What must hold:
//   - A rendered page depends on its model alone. Nothing here reads a clock, so equal models give equal bytes,
//     and an ETag over them is honest. Instants are rendered as <time datetime>; the browser turns them
//     into ages and countdowns.
//   - All text is escaped by templ; names of peers, groups and subscriptions stand in <bdi>, because they may hold
//     anything but control characters.
//   - There is no inline script, style or event handler: the page runs under a Content-Security-Policy that has
//     no 'unsafe-inline'.
//   - Elements that are morphed in place carry stable ids.
//
// The *_templ.go files are generated (make generate).
package views
