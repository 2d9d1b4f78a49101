package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// fakeResolver knows a few names.
type fakeResolver map[string]string

func (f fakeResolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	addr, ok := f[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr(addr)}, nil
}

func pointers(err error) []string {
	var invalid *coordination.InvalidError
	if !errors.As(err, &invalid) {
		return nil
	}
	var list []string
	for _, f := range invalid.Fields {
		list = append(list, f.Pointer)
	}
	return list
}

func TestRegistrationRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Resolver = fakeResolver{"metadata.internal": "169.254.169.254", "good.internal": "10.0.0.1"}
	})
	long := strings.Repeat("x", 5000)
	many := func(n int) []string { return strings.Split(strings.Repeat("peer.*,", n-1)+"peer.*", ",") }
	for name, c := range map[string]struct {
		req  service.WebhookCreate
		want []string
	}{
		"no url":              {service.WebhookCreate{}, []string{"/url"}},
		"relative url":        {service.WebhookCreate{URL: "/hook"}, []string{"/url"}},
		"another scheme":      {service.WebhookCreate{URL: "ftp://h/x"}, []string{"/url"}},
		"a file":              {service.WebhookCreate{URL: "file:///etc/passwd"}, []string{"/url"}},
		"opaque":              {service.WebhookCreate{URL: "http:h"}, []string{"/url"}},
		"no host":             {service.WebhookCreate{URL: "http:///x"}, []string{"/url"}},
		"port 0":              {service.WebhookCreate{URL: "http://h:0/"}, []string{"/url"}},
		"port too high":       {service.WebhookCreate{URL: "http://h:65536/"}, []string{"/url"}},
		"empty port":          {service.WebhookCreate{URL: "http://h:/"}, []string{"/url"}},
		"fragment":            {service.WebhookCreate{URL: "http://h/#x"}, []string{"/url"}},
		"space":               {service.WebhookCreate{URL: "http://h/a b"}, []string{"/url"}},
		"line break":          {service.WebhookCreate{URL: "http://h/a\r\nHost: x"}, []string{"/url"}},
		"too long":            {service.WebhookCreate{URL: "http://h/" + long}, []string{"/url"}},
		"link-local":          {service.WebhookCreate{URL: "http://169.254.169.254/latest"}, []string{"/url"}},
		"link-local, mapped":  {service.WebhookCreate{URL: "http://[::ffff:169.254.169.254]/"}, []string{"/url"}},
		"link-local, v6 zone": {service.WebhookCreate{URL: "http://[fe80::1%25eth0]/"}, []string{"/url"}},
		"unspecified":         {service.WebhookCreate{URL: "http://0.0.0.0:8080/"}, []string{"/url"}},
		"multicast":           {service.WebhookCreate{URL: "http://[ff02::1]/"}, []string{"/url"}},
		"resolves to refused": {service.WebhookCreate{URL: "https://metadata.internal/"}, []string{"/url"}},
		"unknown pattern": {
			service.WebhookCreate{URL: "http://good.internal/", EventTypes: []string{"orphan.*", "orphan.lost", "orph*", "", "webhook.test", "**"}},
			[]string{"/event_types/1", "/event_types/2", "/event_types/3", "/event_types/4", "/event_types/5"},
		},
		"too many patterns": {service.WebhookCreate{URL: "http://good.internal/", EventTypes: many(65)}, []string{"/event_types"}},
		"groups":            {service.WebhookCreate{URL: "http://good.internal/", Groups: []string{"a", "", "b\n", "\xff", long}}, []string{"/groups/1", "/groups/2", "/groups/3", "/groups/4"}},
		"description":       {service.WebhookCreate{URL: "http://good.internal/", Description: "a\x00"}, []string{"/description"}},
		"secret too short":  {service.WebhookCreate{URL: "http://good.internal/", Secret: "whsec_AAAA"}, []string{"/secret"}},
		"secret, no prefix": {service.WebhookCreate{URL: "http://good.internal/", Secret: strings.TrimPrefix(publicSecret, secretPrefix)}, []string{"/secret"}},
		"headers": {
			service.WebhookCreate{URL: "http://good.internal/", Headers: map[string]string{
				"Host": "x", "content-length": "1", "Connection": "close", "Transfer-Encoding": "chunked", "TE": "x",
				"Webhook-Id": "x", "webhook-anything": "x", "Proxy-Authorization": "x", "X-Ok": "fine",
				"X-Bad": "a\r\nX-Injected: b", "X Bad": "x", "": "x", "A~b/c": "x",
			}},
			[]string{
				"/headers/", "/headers/A~0b~1c", "/headers/Connection", "/headers/Host", "/headers/Proxy-Authorization", "/headers/TE",
				"/headers/Transfer-Encoding", "/headers/Webhook-Id", "/headers/X Bad", "/headers/X-Bad", "/headers/content-length",
				"/headers/webhook-anything",
			},
		},
		"header twice": {service.WebhookCreate{URL: "http://good.internal/", Headers: map[string]string{"X-A": "1", "x-a": "2"}}, []string{"/headers/X-A"}},
		"several": {
			service.WebhookCreate{URL: "gopher://x", EventTypes: []string{"x"}, Secret: "x"},
			[]string{"/url", "/event_types/0", "/secret"},
		},
	} {
		_, err := r.w.Create(t.Context(), c.req)
		require.ErrorIs(t, err, coordination.ErrInvalid, name)
		got := pointers(err)
		if name == "header twice" {
			assert.Equal(t, strings.ToLower(c.want[0]), strings.ToLower(got[0]), name)
			continue
		}
		assert.ElementsMatch(t, c.want, got, name)
	}
	list, err := r.w.List(t.Context(), service.Page{})
	require.NoError(t, err)
	assert.Zero(t, list.Total, "nothing was registered")
}

func TestRegistrationAccepts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Resolver = fakeResolver{"good.internal": "10.0.0.1"} })
	for _, url := range []string{
		"http://127.0.0.1:1/", "https://[::1]:8443/x?y=z", "http://192.168.1.1", "http://good.internal/", "HTTPS://good.internal/",
		"https://user:pass@good.internal/a", "https://not-resolvable.invalid/",
	} {
		_, err := r.w.Create(t.Context(), service.WebhookCreate{URL: url})
		assert.NoError(t, err, url)
	}
	v := r.create(service.WebhookCreate{
		URL: "http://10.0.0.1/", EventTypes: []string{"*", "peer.stale", "*", "leader.*"}, Groups: []string{"a", "a", "b"},
		Headers: map[string]string{"authorization": "Bearer x"}, Description: "pager", Disabled: true,
	})
	assert.Equal(t, []string{"*", "peer.stale", "leader.*"}, v.EventTypes)
	assert.Equal(t, []string{"a", "b"}, v.Groups)
	assert.Equal(t, map[string]string{"Authorization": redacted}, v.Headers)
	assert.False(t, v.Enabled)
	assert.NotEmpty(t, v.DisabledReason)
	_, err := secretKey(v.Secret)
	require.NoError(t, err)
	assert.Empty(t, r.webhook(v.ID).Secret, "shown once")
	assert.Equal(t, []string{"orphan.*"}, r.create(service.WebhookCreate{URL: "http://10.0.0.1/"}).EventTypes, "the default")
}

func TestRegistrationsAreLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.MaxWebhooks = 2 })
	for range 2 {
		r.create(service.WebhookCreate{URL: "http://10.0.0.1/"})
	}
	_, err := r.w.Create(t.Context(), service.WebhookCreate{URL: "http://10.0.0.1/"})
	require.ErrorIs(t, err, coordination.ErrLimit)
}

func TestMatching(t *testing.T) {
	t.Parallel()
	event := func(typ coordination.EventType, group string) *coordination.Event {
		return &coordination.Event{Type: typ, Data: coordination.EventData{Group: group}}
	}
	for _, c := range []struct {
		patterns, groups []string
		event            *coordination.Event
		want             bool
	}{
		{[]string{"orphan.*"}, nil, event(coordination.EventOrphanDetected, "a"), true},
		{[]string{"orphan.*"}, nil, event(coordination.EventPeerStale, "a"), false},
		{[]string{"orphan.detected"}, nil, event(coordination.EventOrphanResolved, "a"), false},
		{[]string{"peer.*", "orphan.resolved"}, nil, event(coordination.EventOrphanResolved, "a"), true},
		{[]string{"*"}, nil, event(coordination.EventLeaderChanged, ""), true},
		{[]string{"*"}, []string{"a"}, event(coordination.EventPeerStale, "b"), false},
		{[]string{"*"}, []string{"a", "b"}, event(coordination.EventPeerStale, "b"), true},
		{[]string{"*"}, []string{"a"}, event(coordination.EventLeaderChanged, ""), true},
	} {
		ep := endpoint{EventTypes: c.patterns, Groups: c.groups}
		assert.Equal(t, c.want, ep.matches(c.event), "%v %v %s/%s", c.patterns, c.groups, c.event.Type, c.event.Data.Group)
	}
}

func TestConstructorNamesTheBadOption(t *testing.T) {
	t.Parallel()
	good := Options{Store: &faultyStore{}, Journal: newFakeJournal(), Elector: &fakeElector{}, Events: newFakeJournal()}
	_, err := New(good)
	require.NoError(t, err)
	for field, spoil := range map[string]func(*Options){
		"Store":            func(o *Options) { o.Store = nil },
		"Journal":          func(o *Options) { o.Journal = nil },
		"Elector":          func(o *Options) { o.Elector = nil },
		"Events":           func(o *Options) { o.Events = nil },
		"Timeout":          func(o *Options) { o.Timeout = -1 },
		"QueueLimit":       func(o *Options) { o.QueueLimit = -1 },
		"MaxTxnOperations": func(o *Options) { o.MaxTxnOperations = 3 },
		"RetrySchedule":    func(o *Options) { o.RetrySchedule = DefaultRetrySchedule()[:1]; o.RetrySchedule[0] = 0 },
	} {
		bad := good
		spoil(&bad)
		_, err := New(bad)
		assert.ErrorContains(t, err, field)
	}
}
