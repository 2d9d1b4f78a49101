package coordination

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func numbered(n, size int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%0*d", size, i)
	}
	return out
}

func validHeartbeat() Heartbeat {
	return Heartbeat{Group: DefaultGroup, InstanceID: "worker-1", Subscriptions: []string{"a"}}
}

func validShutdown() Shutdown {
	start := time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC)
	return Shutdown{
		Group: DefaultGroup, InstanceID: "worker-1", Intent: IntentGraceful, InitiatedAt: start, ExpectedCompletionAt: start.Add(time.Minute),
	}
}

// checkFields compares the wrong fields with "pointer: part of the detail" lines, in any order.
func checkFields(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v, want an InvalidError with %q", err, want)
	}
	got := slices.Clone(invalid.Fields)
	for _, line := range want {
		pointer, detail, _ := strings.Cut(line, ": ")
		at := slices.IndexFunc(got, func(f FieldError) bool { return f.Pointer == pointer && strings.Contains(f.Detail, detail) })
		if at < 0 {
			t.Errorf("no field %q in %+v", line, invalid.Fields)
			continue
		}
		got = slices.Delete(got, at, at+1)
	}
	if len(got) > 0 {
		t.Errorf("more fields than expected: %+v", got)
	}
}

func TestCheckHeartbeat(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Heartbeat)
		want   []string
	}{
		{"a plain one", func(*Heartbeat) {}, nil},
		{"no subscriptions", func(h *Heartbeat) { h.Subscriptions = nil }, nil},
		{"an empty id", func(h *Heartbeat) { h.InstanceID = "" }, []string{"/instance_id: is empty; it must have 1 to 255 bytes"}},
		{"an id of 255 bytes", func(h *Heartbeat) { h.InstanceID = strings.Repeat("x", 255) }, nil},
		{"an id of 256 bytes", func(h *Heartbeat) { h.InstanceID = strings.Repeat("x", 256) }, []string{"/instance_id: has 256 bytes; it may have 255"}},
		{"an id of 255 bytes in 85 characters", func(h *Heartbeat) { h.InstanceID = strings.Repeat("名", 85) }, nil},
		{"an id of 256 bytes in 128 characters", func(h *Heartbeat) { h.InstanceID = strings.Repeat("é", 128) }, []string{"/instance_id: has 256 bytes"}},
		{"slashes, quotes and spaces", func(h *Heartbeat) { h.InstanceID = `a/b "c" <script>` }, nil},
		{"a NUL", func(h *Heartbeat) { h.InstanceID = "a\x00b" }, []string{"/instance_id: control character U+0000"}},
		{"a line feed", func(h *Heartbeat) { h.InstanceID = "a\n" }, []string{"/instance_id: control character U+000A"}},
		{"a unit separator", func(h *Heartbeat) { h.InstanceID = "\x1f" }, []string{"/instance_id: control character U+001F"}},
		{"a delete", func(h *Heartbeat) { h.InstanceID = "\x7f" }, []string{"/instance_id: control character U+007F"}},
		{"a C1 control", func(h *Heartbeat) { h.InstanceID = "é\u0085" }, []string{"/instance_id: control character U+0085"}},
		{"the first after the C1 controls", func(h *Heartbeat) { h.InstanceID = "\u00a0" }, nil},
		{"not UTF-8", func(h *Heartbeat) { h.InstanceID = "a\xc3" }, []string{"/instance_id: is not UTF-8"}},
		{"an empty group", func(h *Heartbeat) { h.Group = "" }, []string{"/group: is empty"}},
		{"1,000 subscriptions", func(h *Heartbeat) { h.Subscriptions = numbered(1000, 10) }, nil},
		{"1,001 subscriptions", func(h *Heartbeat) { h.Subscriptions = numbered(1001, 10) }, []string{"/subscriptions: has 1001 entries; a peer may have 1000"}},
		{"64 KiB of subscriptions", func(h *Heartbeat) { h.Subscriptions = numbered(512, 128) }, nil},
		{"64 KiB and a byte", func(h *Heartbeat) { h.Subscriptions = append(numbered(512, 128), "x") }, []string{"/subscriptions: has 65537 bytes together; a peer may have 65536"}},
		{
			"wrong subscriptions",
			func(h *Heartbeat) { h.Subscriptions = []string{"a", "", "b", "\t"} },
			[]string{"/subscriptions/1: is empty", "/subscriptions/3: control character U+0009"},
		},
		{"a negative count", func(h *Heartbeat) { h.InFlightCount = -1 }, []string{"/in_flight_count: is -1; it must be from 0 to"}},
		{"the largest count", func(h *Heartbeat) { h.InFlightCount = 1<<53 - 1 }, nil},
		{"one more", func(h *Heartbeat) { h.InFlightCount = 1 << 53 }, []string{"/in_flight_count: is 9007199254740992"}},
		{"a factor of 0", func(h *Heartbeat) { h.LoadFactor = 0 }, nil},
		{"the largest factor", func(h *Heartbeat) { h.LoadFactor = math.MaxFloat64 }, nil},
		{"a negative factor", func(h *Heartbeat) { h.LoadFactor = -math.SmallestNonzeroFloat64 }, []string{"/load_factor: finite number of at least 0"}},
		{"NaN", func(h *Heartbeat) { h.LoadFactor = math.NaN() }, []string{"/load_factor: finite"}},
		{"infinity", func(h *Heartbeat) { h.LoadFactor = math.Inf(1) }, []string{"/load_factor: finite"}},
		{"negative infinity", func(h *Heartbeat) { h.LoadFactor = math.Inf(-1) }, []string{"/load_factor: finite"}},
		{"a long incarnation", func(h *Heartbeat) { h.Incarnation = strings.Repeat("x", 256) }, []string{"/incarnation: has 256 bytes"}},
		{
			"labels at their limits",
			func(h *Heartbeat) {
				h.Labels = map[string]string{strings.Repeat("k", 255): strings.Repeat("v", 255), "empty": ""}
			},
			nil,
		},
		{
			"wrong labels",
			func(h *Heartbeat) {
				h.Labels = map[string]string{"": "x", "version": strings.Repeat("v", 256), "a/b": "\r", strings.Repeat("k", 256): ""}
			},
			[]string{
				"/labels/: has a key that is empty", "/labels/version: has 256 bytes; it may have 255", "/labels/a~1b: control character U+000D",
				"/labels/" + strings.Repeat("k", 256) + ": has a key that has 256 bytes",
			},
		},
		{"64 labels", func(h *Heartbeat) { h.Labels = labels(64) }, nil},
		{"65 labels", func(h *Heartbeat) { h.Labels = labels(65) }, []string{"/labels: has 65 labels; a peer may have 64"}},
		{
			"everything",
			func(h *Heartbeat) { *h = Heartbeat{InFlightCount: -2, LoadFactor: -1, Subscriptions: []string{""}} },
			[]string{"/instance_id: empty", "/group: empty", "/subscriptions/0: empty", "/in_flight_count: -2", "/load_factor: finite"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := validHeartbeat()
			tt.change(&h)
			checkFields(t, DefaultLimits().CheckHeartbeat(&h), tt.want)
		})
	}
}

func labels(n int) map[string]string {
	all := make(map[string]string, n)
	for _, key := range numbered(n, 4) {
		all[key] = "v"
	}
	return all
}

func TestCheckShutdown(t *testing.T) {
	start := validShutdown().InitiatedAt
	timeout := func(d time.Duration) func(*Shutdown) {
		return func(n *Shutdown) { n.ExpectedCompletionAt, n.DrainTimeout, n.HasDrainTimeout = time.Time{}, d, true }
	}
	window := func(d time.Duration) func(*Shutdown) {
		return func(n *Shutdown) { n.ExpectedCompletionAt = start.Add(d) }
	}
	tests := []struct {
		name   string
		change func(*Shutdown)
		want   []string
	}{
		{"a plain one", func(*Shutdown) {}, nil},
		{"no intent", func(n *Shutdown) { n.Intent = "" }, []string{"/intent: must be one of graceful"}},
		{"an unknown intent", func(n *Shutdown) { n.Intent = "GRACEFUL" }, []string{"/intent: must be one of graceful"}},
		{"a drain of no time", window(0), nil},
		{"completion 1 ns before the start", window(-1), []string{"/expected_completion_at: is before initiated_at"}},
		{"a window of 24 h", window(24 * time.Hour), nil},
		{"a window of 24 h and 1 ns", window(24*time.Hour + 1), []string{"/expected_completion_at: longer than 86400 seconds"}},
		{"a window of centuries", func(n *Shutdown) { n.ExpectedCompletionAt = n.InitiatedAt.AddDate(7000, 0, 0) }, []string{"/expected_completion_at: longer than"}},
		{"a completion without a start", func(n *Shutdown) { n.InitiatedAt = time.Time{} }, nil},
		{"no end at all", func(n *Shutdown) { n.ExpectedCompletionAt = time.Time{} }, []string{"/expected_completion_at: is required unless drain_timeout_seconds"}},
		{"both ends", func(n *Shutdown) { n.HasDrainTimeout = true }, []string{"/drain_timeout_seconds: give one of the two"}},
		{"a timeout of 0", timeout(0), nil},
		{"a negative timeout", timeout(-1), []string{"/drain_timeout_seconds: is negative"}},
		{"a timeout of 24 h", timeout(24 * time.Hour), nil},
		{"a timeout of 24 h and 1 ns", timeout(24*time.Hour + 1), []string{"/drain_timeout_seconds: longer than 86400 seconds"}},
		{"metadata of 16 KiB", func(n *Shutdown) { n.Metadata = make([]byte, 16<<10) }, nil},
		{"metadata of 16 KiB and a byte", func(n *Shutdown) { n.Metadata = make([]byte, 16<<10+1) }, []string{"/metadata: has 16385 bytes; at most 16384"}},
		{
			"everything",
			func(n *Shutdown) {
				*n = Shutdown{InFlightCount: -1, Subscriptions: []string{"\x00"}, Incarnation: "\x00", HasDrainTimeout: true, DrainTimeout: -1}
			},
			[]string{
				"/instance_id: empty", "/group: empty", "/intent: one of", "/drain_timeout_seconds: negative", "/subscriptions/0: control",
				"/in_flight_count: -1", "/incarnation: control",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := validShutdown()
			tt.change(&n)
			checkFields(t, DefaultLimits().CheckShutdown(&n), tt.want)
		})
	}
}

func TestCheckShutdownFromBusKeepsAWindowThatEndsBeforeItStarts(t *testing.T) {
	n := validShutdown()
	n.ExpectedCompletionAt = n.InitiatedAt.Add(-time.Hour)
	checkFields(t, DefaultLimits().CheckShutdownFromBus(&n), nil)
	n.InstanceID = ""
	checkFields(t, DefaultLimits().CheckShutdownFromBus(&n), []string{"/instance_id: is empty"})
	n = validShutdown()
	n.ExpectedCompletionAt = n.InitiatedAt.Add(24*time.Hour + 1)
	checkFields(t, DefaultLimits().CheckShutdownFromBus(&n), []string{"/expected_completion_at: longer than"})
}

func TestCheckAssignment(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Assignment)
		want   []string
	}{
		{"a plain one", func(*Assignment) {}, nil},
		{"no source", func(a *Assignment) { a.SourceInstanceID = "" }, nil},
		{"a source that is wrong", func(a *Assignment) { a.SourceInstanceID = "\x01" }, []string{"/source_instance_id: control"}},
		{"no target", func(a *Assignment) { a.TargetInstanceID = "" }, []string{"/target_instance_id: is empty"}},
		{"the lowest priority", func(a *Assignment) { a.Priority = math.MinInt32 }, nil},
		{"one below", func(a *Assignment) { a.Priority = math.MinInt32 - 1 }, []string{"/priority: is -2147483649; it must be from -2147483648 to 2147483647"}},
		{"the highest priority", func(a *Assignment) { a.Priority = math.MaxInt32 }, nil},
		{"one above", func(a *Assignment) { a.Priority = math.MaxInt32 + 1 }, []string{"/priority: is 2147483648"}},
		{"an id that is wrong", func(a *Assignment) { a.ID = "\n" }, []string{"/id: control"}},
		{"everything", func(a *Assignment) { *a = Assignment{Subscriptions: []string{""}} }, []string{"/target_instance_id: empty", "/group: empty", "/subscriptions/0: empty"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := Assignment{Group: DefaultGroup, TargetInstanceID: "w", SourceInstanceID: "v", Subscriptions: []string{"a"}}
			tt.change(&a)
			checkFields(t, DefaultLimits().CheckAssignment(&a), tt.want)
		})
	}
}

func TestCheckID(t *testing.T) {
	checkFields(t, DefaultLimits().CheckID("/subscription", "orders"), nil)
	checkFields(t, DefaultLimits().CheckID("/subscription", ""), []string{"/subscription: is empty"})
	tight := DefaultLimits()
	tight.IDBytes = 3
	checkFields(t, tight.CheckID("/group", "abcd"), []string{"/group: has 4 bytes; it may have 3"})
}

func TestLimitsValidate(t *testing.T) {
	if err := DefaultLimits().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for name, change := range map[string]func(*Limits){
		"id": func(l *Limits) { l.IDBytes = 0 }, "subscription": func(l *Limits) { l.Subscriptions = 0 },
		"subscription limits": func(l *Limits) { l.SubscriptionsBytes = 0 }, "label": func(l *Limits) { l.Labels = -1 },
		"metadata": func(l *Limits) { l.MetadataBytes = 1 }, "in-flight": func(l *Limits) { l.MaxInFlight = -1 },
		"drain": func(l *Limits) { l.MaxDrain = 0 }, "priority": func(l *Limits) { l.MinPriority = math.MaxInt64 },
	} {
		l := DefaultLimits()
		change(&l)
		if err := l.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v does not name it", name, err)
		}
	}
}

func TestCheckingAValidMessageDoesNotAllocate(t *testing.T) {
	limits := DefaultLimits()
	h := validHeartbeat()
	h.Subscriptions = append(numbered(19, 20), "géo/eu")
	h.Incarnation = "pod-1"
	h.Labels = labels(8)
	n := validShutdown()
	n.Subscriptions = h.Subscriptions
	if allocs := testing.AllocsPerRun(100, func() {
		if limits.CheckHeartbeat(&h) != nil || limits.CheckShutdown(&n) != nil || len(FoldDuplicates(h.Subscriptions)) != 20 {
			panic("refused")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func TestFoldDuplicates(t *testing.T) {
	for _, tt := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{}, []string{}},
		{[]string{"a"}, []string{"a"}},
		{[]string{"b", "a", "b", "c", "a"}, []string{"b", "a", "c"}},
		{[]string{"", ""}, []string{""}},
		{[]string{"a", "A"}, []string{"a", "A"}},
	} {
		before := slices.Clone(tt.in)
		if got := FoldDuplicates(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%q folds to %q, want %q", tt.in, got, tt.want)
		}
		if !slices.Equal(tt.in, before) {
			t.Errorf("folding changed its input from %q to %q", before, tt.in)
		}
	}
}

func TestFoldDuplicatesAtEverySize(t *testing.T) {
	for _, n := range []int{1, 2, foldByScan, foldByScan + 1, foldSlots / 2, foldSlots/2 + 1, 5000} {
		distinct := numbered(n, 8)
		if got := FoldDuplicates(distinct); !slices.Equal(got, distinct) {
			t.Errorf("%d distinct values fold to %d", n, len(got))
		}
		// Every place of the repeated value, the last one always.
		for _, at := range []int{0, n / 2, n - 1} {
			twice := slices.Concat(distinct, []string{distinct[at]})
			if got := FoldDuplicates(twice); !slices.Equal(got, distinct) {
				t.Errorf("%d values and the repeated %dth fold to %d", n, at, len(got))
			}
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { FoldDuplicates(thousand) }); allocs != 0 {
		t.Errorf("%v allocations for 1,000 distinct values, want none", allocs)
	}
}

var thousand = numbered(1000, 8)
