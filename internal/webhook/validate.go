package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

const (
	maxURLBytes         = 2048
	maxDescriptionBytes = 1024
	maxEventTypes       = 64
	maxGroups           = 256
	maxHeaders          = 32
	maxHeaderBytes      = 4096
	maxNameBytes        = 255
	lookupTimeout       = 2 * time.Second
)

// fields collects what is wrong with a request.
type fields []coordination.FieldError

func (f *fields) add(pointer, format string, args ...any) {
	*f = append(*f, coordination.FieldError{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
}

func (f fields) err() error {
	if len(f) == 0 {
		return nil
	}
	return &coordination.InvalidError{Fields: f}
}

// checkURL requires an absolute http or https URL whose host may be called. A name that does not resolve is no error:
// the dialler decides at every attempt.
func (w *Webhooks) checkURL(ctx context.Context, raw string, f *fields) {
	const pointer = "/url"
	if raw == "" {
		f.add(pointer, "is required")
		return
	}
	if len(raw) > maxURLBytes {
		f.add(pointer, "has %d bytes, at most %d are allowed", len(raw), maxURLBytes)
		return
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		f.add(pointer, "is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		f.add(pointer, "must start with http:// or https://")
	case u.Hostname() == "" || u.Opaque != "":
		f.add(pointer, "has no host")
	case !validPort(u):
		f.add(pointer, "has a port outside 1 to 65535")
	case u.Fragment != "":
		f.add(pointer, "has a fragment, which would not be sent")
	default:
		w.checkHost(ctx, u.Hostname(), f)
	}
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && port >= 1 && port <= 65535
}

func (w *Webhooks) checkHost(ctx context.Context, host string, f *fields) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if err := w.guard.check(addr); err != nil {
			f.add("/url", "%s", err.Error())
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := w.opts.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return
	}
	for _, addr := range addrs {
		var refused *refusedError
		if errors.As(w.guard.check(addr), &refused) {
			f.add("/url", "%s resolves to an address that is refused: %s", host, refused.Error())
			return
		}
	}
}

// checkEventTypes refuses what can never match and returns the list without duplicates, or the default.
func checkEventTypes(patterns []string, f *fields) []string {
	if patterns != nil && len(patterns) == 0 {
		f.add("/event_types", "is empty; name at least one type or pattern, or leave it out for %s", defaultEventTypes)
	}
	if len(patterns) > maxEventTypes {
		f.add("/event_types", "has %d entries, at most %d are allowed", len(patterns), maxEventTypes)
		return nil
	}
	var list []string
	for i, p := range patterns {
		if !knownPattern(p) {
			f.add("/event_types/"+strconv.Itoa(i), "%s is neither an event type, nor a family such as orphan.*, nor *", quoted(p))
			continue
		}
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return []string{defaultEventTypes}
	}
	return list
}

func knownPattern(pattern string) bool {
	return pattern == "*" || slices.ContainsFunc(coordination.EventTypes(), func(t coordination.EventType) bool {
		if string(t) == pattern {
			return true
		}
		family, _, _ := strings.Cut(string(t), ".")
		return pattern == family+".*"
	})
}

func checkGroups(groups []string, f *fields) []string {
	if len(groups) > maxGroups {
		f.add("/groups", "has %d entries, at most %d are allowed", len(groups), maxGroups)
		return nil
	}
	var list []string
	for i, g := range groups {
		if detail := nameFault(g); detail != "" {
			f.add("/groups/"+strconv.Itoa(i), "%s", detail)
			continue
		}
		if !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	return list
}

func nameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxNameBytes:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), maxNameBytes)
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "contains a control character"
	}
	return ""
}

func checkDescription(s string, f *fields) {
	switch {
	case len(s) > maxDescriptionBytes:
		f.add("/description", "has %d bytes, at most %d are allowed", len(s), maxDescriptionBytes)
	case !utf8.ValidString(s):
		f.add("/description", "is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		f.add("/description", "contains a control character")
	}
}

// checkHeaders returns the headers under their canonical names.
func checkHeaders(headers map[string]string, f *fields) map[string]string {
	if len(headers) > maxHeaders {
		f.add("/headers", "has %d entries, at most %d are allowed", len(headers), maxHeaders)
		return nil
	}
	list := make(map[string]string, len(headers))
	for name, value := range headers {
		pointer := "/headers/" + pointerEscape(name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		_, twice := list[canonical]
		switch {
		case !httpguts.ValidHeaderFieldName(name) || len(name) > maxNameBytes:
			f.add(pointer, "is not a header name")
		case reservedHeader(canonical):
			f.add(pointer, "is set by the service and cannot be chosen")
		case twice:
			f.add(pointer, "is there twice")
		case len(value) > maxHeaderBytes:
			f.add(pointer, "has %d bytes, at most %d are allowed", len(value), maxHeaderBytes)
		case !httpguts.ValidHeaderFieldValue(value) || !utf8.ValidString(value):
			f.add(pointer, "contains a character that no header value may have")
		default:
			list[canonical] = value
		}
	}
	slices.SortFunc(*f, func(a, b coordination.FieldError) int { return strings.Compare(a.Pointer, b.Pointer) })
	return list
}

// reservedHeader: the signature's, the body's and the connection's headers are the service's.
func reservedHeader(canonical string) bool {
	switch canonical {
	case "Host", "Content-Length", "Content-Type", "Content-Encoding", "Accept-Encoding", "Connection", "Keep-Alive",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Http2-Settings":
		return true
	}
	return strings.HasPrefix(canonical, "Webhook-") || strings.HasPrefix(canonical, "Proxy-")
}

func pointerEscape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

// quoted makes a hostile string fit for an error message.
func quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most]
	}
	return strconv.QuoteToASCII(s)
}

func checkSecret(secret string, f *fields) string {
	if secret == "" {
		return newSecret()
	}
	if _, err := secretKey(secret); err != nil {
		f.add("/secret", "%s", err.Error())
	}
	return secret
}
