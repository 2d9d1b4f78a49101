package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
)

func TestAWrongClockNeverDecidesLiveness(t *testing.T) {
	for name, offset := range map[string]time.Duration{"an hour behind": -time.Hour, "an hour ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, t.TempDir())
				defer r.stop()
				beat := func() {
					r.beatAs(coordination.Heartbeat{InstanceID: "a", Timestamp: time.Now().Add(offset), Subscriptions: []string{"orders"}})
				}
				beat()
				r.keepBeating(time.Minute, beat)
				assert.Equal(t, coordination.StatusHealthy, r.status("a"))
				p, err := r.Peer(coordination.PeerKey{Group: "default", InstanceID: "a"})
				require.NoError(t, err)
				assert.InDelta(t, offset.Seconds(), p.ClockSkew.Seconds(), 0.1)
				r.later(timeout + 1)
				assert.Equal(t, coordination.StatusStale, r.status("a"), "silence counts, whatever the stamps said")
			})
		})
	}
}

func TestAClockThatStepsBackStaysHealthyAndIsBelievedAfterThreeBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		offset := time.Duration(0)
		var outcomes []coordination.Outcome
		beat := func() {
			reply := r.beatAs(coordination.Heartbeat{InstanceID: "a", Timestamp: time.Now().Add(offset)})
			outcomes = append(outcomes, reply.Outcome)
			assert.Equal(t, coordination.StatusHealthy, reply.Status)
		}
		beat()
		offset = -time.Hour
		r.keepBeating(timeout/3*4, beat)
		assert.Equal(t, []coordination.Outcome{"accepted", "ignored_older", "ignored_older", "accepted", "accepted"}, outcomes)
	})
}

func TestADrainEndsWhenTheSenderMeantIt(t *testing.T) {
	for name, tt := range map[string]struct {
		offset    time.Duration
		initiated bool
	}{
		"clock behind":                    {-time.Hour, true},
		"clock behind, no initiated_at":   {-time.Hour, false},
		"clock ahead":                     {time.Hour, true},
		"clock ahead, no initiated_at":    {time.Hour, false},
		"clock right within the two secs": {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, t.TempDir())
				defer r.stop()
				clock := func() time.Time { return time.Now().Add(tt.offset) }
				r.beatAs(coordination.Heartbeat{InstanceID: "a", Timestamp: clock(), Subscriptions: []string{"orders"}})
				n := coordination.Shutdown{InstanceID: "a", Intent: coordination.IntentGraceful, ExpectedCompletionAt: clock().Add(10 * time.Second)}
				if tt.initiated {
					n.InitiatedAt = clock()
				}
				reply, err := r.Shutdown(t.Context(), n)
				require.NoError(t, err)
				assert.Equal(t, coordination.StatusDraining, reply.Status)
				assert.InDelta(t, 10, reply.TimeRemaining.Seconds(), 0.01)
			})
		})
	}
}

func TestADrainWindowIsBoundedHoweverItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		_, err := r.Shutdown(t.Context(), coordination.Shutdown{
			InstanceID: "a", Intent: coordination.IntentGraceful, ExpectedCompletionAt: time.Now().Add(25 * time.Hour),
		})
		var wrong *coordination.InvalidError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, "/expected_completion_at", wrong.Fields[0].Pointer)
		assert.Equal(t, "not found", string(r.status("a")), "a refused message changes nothing")
	})
}
