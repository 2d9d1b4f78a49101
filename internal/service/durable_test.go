package service_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// gate holds commits back, or fails them, between the service and its real store.
type gate struct {
	service.Store
	mu     sync.Mutex
	closed chan struct{} // commits wait until it is closed; nil lets them pass
	fail   error
}

func (g *gate) Commit(ctx context.Context, txn service.Txn) (uint64, error) {
	g.mu.Lock()
	closed, fail := g.closed, g.fail
	g.mu.Unlock()
	if fail != nil {
		return 0, fail
	}
	if closed != nil {
		<-closed
	}
	return g.Store.Commit(ctx, txn)
}

func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := make(chan struct{})
	g.closed = held
	return func() {
		g.mu.Lock()
		g.closed = nil
		g.mu.Unlock()
		close(held)
	}
}

func (g *gate) breakDown(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

func withGate(g *gate) rigOption {
	return withOptions(func(o *service.Options) {
		g.Store = o.Store
		o.Store = g
	})
}

// durable are the calls whose success is a promise. Each prepares what it needs, and returns the call.
var durable = map[string]func(r *rig) func(ctx context.Context) error{
	"shutdown": func(r *rig) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.Shutdown(ctx, coordination.Shutdown{InstanceID: "a", Intent: coordination.IntentGraceful})
			return err
		}
	},
	"cancel": func(r *rig) func(context.Context) error {
		r.beat("a", "orders")
		r.drain("a", time.Minute)
		return func(ctx context.Context) error {
			_, err := r.CancelDrain(ctx, coordination.PeerKey{Group: "default", InstanceID: "a"})
			return err
		}
	},
	"remove": func(r *rig) func(context.Context) error {
		r.beat("a", "orders")
		return func(ctx context.Context) error {
			return r.RemovePeer(ctx, coordination.PeerKey{Group: "default", InstanceID: "a"})
		}
	},
	"claim": func(r *rig) func(context.Context) error {
		return func(ctx context.Context) error {
			_, _, err := r.Claim(ctx, service.ClaimRequest{Subscription: "orders", InstanceID: "b"})
			return err
		}
	},
	"release": func(r *rig) func(context.Context) error {
		r.beat("b", "mail")
		c := r.claim("orders", "b")
		return func(ctx context.Context) error {
			_, err := r.ReleaseClaim(ctx, c.ID)
			return err
		}
	},
	"dismiss": func(r *rig) func(context.Context) error {
		r.beat("a", "orders")
		r.drain("a", time.Minute)
		o := r.orphans(service.OrphanOpen)[0]
		return func(ctx context.Context) error {
			_, err := r.DismissOrphan(ctx, o.ID, "")
			return err
		}
	},
	"assign": func(r *rig) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.Assign(ctx, coordination.Assignment{TargetInstanceID: "b", Subscriptions: []string{"orders"}, SourceInstanceID: "ops"})
			return err
		}
	},
	"acknowledge": func(r *rig) func(context.Context) error {
		a, err := r.Assign(r.t.Context(), coordination.Assignment{TargetInstanceID: "b", Subscriptions: []string{"orders"}, SourceInstanceID: "ops"})
		require.NoError(r.t, err)
		return func(ctx context.Context) error {
			_, err := r.AcknowledgeAssignment(ctx, a.ID)
			return err
		}
	},
}

func TestADurableCallAnswersAfterItsCommit(t *testing.T) {
	for name, prepare := range durable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{}
				r := start(t, t.TempDir(), withGate(g))
				defer r.stop()
				call := prepare(r)
				r.later(time.Second)
				open := g.shut()
				done := make(chan error, 1)
				go func() { done <- call(t.Context()) }()
				r.later(5 * time.Second)
				select {
				case err := <-done:
					t.Errorf("answered (%v) before its commit", err)
				default:
				}
				open()
				synctest.Wait()
				require.NoError(t, <-done)
			})
		})
	}
}

// TestADurableCallFailsWhenNoSyncCompletes fails if any of these calls answers success though no sync of the store's file
// completed since it came in: the file's descriptor is pointed at /dev/null, where every write succeeds and every sync fails.
func TestADurableCallFailsWhenNoSyncCompletes(t *testing.T) {
	for name, prepare := range durable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var file *os.File
				r := loadFrom(t, t.TempDir(), func(name string, flag int, perm os.FileMode) (*os.File, error) {
					var err error
					file, err = os.OpenFile(name, flag, perm)
					return file, err
				})
				r.run()
				defer r.stop()
				call := prepare(r)
				r.later(time.Second)
				null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
				require.NoError(t, err)
				require.NoError(t, syscall.Dup3(int(null.Fd()), int(file.Fd()), syscall.O_CLOEXEC))
				require.NoError(t, null.Close())
				require.ErrorIs(t, call(t.Context()), service.ErrUnavailable)
				assert.Equal(t, coordination.StatusHealthy, r.beat("c", "mail").Status)
			})
		})
	}
}

func TestWithTheStoreAwayHeartbeatsGoOnAndDurableCallsSaySo(t *testing.T) {
	for name, prepare := range durable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gate{}
				r := start(t, t.TempDir(), withGate(g))
				defer r.stop()
				call := prepare(r)
				r.later(time.Second)
				g.breakDown(errors.Join(service.ErrUnavailable, errors.New("no leader")))
				before := r.told("")
				require.ErrorIs(t, call(t.Context()), service.ErrUnavailable)
				assert.Equal(t, coordination.StatusHealthy, r.beat("c", "mail").Status)
				r.keepBeating(3*timeout, func() { r.beat("b", "mail") })
				assert.Equal(t, coordination.StatusStale, r.status("c"), "statuses are shown all the same")
				assert.Equal(t, before, r.told(""), "nothing is told that is not committed")

				g.breakDown(nil)
				r.later(5 * time.Second)
				assert.Contains(t, r.told("c"), "peer.stale", "nothing needs a restart")
				require.NoError(t, call(t.Context()))
			})
		})
	}
}
