package coordination

import "time"

// GroupSettings rule one group.
type GroupSettings struct {
	// HeartbeatTimeout is the one setting behind both the stale status and the timeout event. > 0.
	HeartbeatTimeout time.Duration
	// Shared groups run their subscriptions on several peers on purpose: no subscription.conflict.
	Shared bool
}

// Config rules the core. All durations are > 0.
type Config struct {
	// Default applies to every group that Groups does not name.
	Default GroupSettings
	Groups  map[string]GroupSettings
	// PeerRetention is how long a stale or terminated peer without an open orphan stays known.
	PeerRetention time.Duration
	// MaxPeers and MaxPeersPerGroup bound what heartbeats can create.
	MaxPeers         int
	MaxPeersPerGroup int
}

// DefaultConfig is the configuration of a service without settings.
func DefaultConfig() Config {
	return Config{
		Default:          GroupSettings{HeartbeatTimeout: 15 * time.Second},
		PeerRetention:    time.Hour,
		MaxPeers:         1_000_000,
		MaxPeersPerGroup: 1_000_000,
	}
}

// Core is the state machine. It is not safe for concurrent use: its owner serialises the calls and
// passes a now that never goes backwards. Outputs are valid until the next call.
type Core struct {
	cfg    Config
	groups map[string]*group
	peers  int
	due    timers
	out    Output

	// What the replica itself missed: see interruption.go.
	lost     time.Duration
	judgeAt  time.Time
	busDown  bool
	busLoss  time.Time
	busUp    time.Time
	hasPeers bool // other replicas are registered

	// Conclusions are drawn only while leading.
	leading bool
	epoch   uint64
	floor   uint64

	orphans     map[string]*orphanRef
	past        map[EpisodeKey]*episode
	reopened    []*peer // to be told at the end of the input
	claims      map[string]*claim
	holders     map[PeerKey][]*claim
	targets     map[PeerKey][]*assignment
	assignments map[string]*assignment
	openClaims  int
}

// New returns an empty core.
func New(cfg Config) *Core {
	return &Core{
		cfg:         cfg,
		groups:      map[string]*group{},
		orphans:     map[string]*orphanRef{},
		past:        map[EpisodeKey]*episode{},
		claims:      map[string]*claim{},
		holders:     map[PeerKey][]*claim{},
		targets:     map[PeerKey][]*assignment{},
		assignments: map[string]*assignment{},
	}
}

// Change tells an index what happened to one peer.
type Change struct {
	Key PeerKey
	// From is "" for a new peer, To is "" for a forgotten one.
	From, To Status
}

// Output is what one input led to: the events to raise and the records to write with them, in one transaction.
// Records come as keys, to be read with the *Record methods when the transaction is built: several
// inputs may be folded into one write. Followers get no Events and no conclusions.
type Output struct {
	Events  []Event
	Changes []Change

	// Peers are roster facts to flush (new peer, changed subscriptions or incarnation).
	Peers []PeerKey
	// Forgotten are peers whose records must go.
	Forgotten []Forgotten
	// Closed are shutdown facts that a rejoin closed.
	Closed []PeerKey
	// Conclusions are peers whose announced state or episode changed.
	Conclusions []PeerKey
	// Past are episodes that are over, to be kept as history.
	Past []EpisodeRecord
	// Claims are claims that the leader moved; Assignments likewise.
	Claims      []SubscriptionKey
	Assignments []string
	// Conflicts and Mass are conclusions about subscriptions and groups.
	Conflicts []SubscriptionKey
	Mass      []string

	// OrphanIDs, ClaimIDs and AssignmentIDs tell an index which of these came, moved or went.
	OrphanIDs     []string
	ClaimIDs      []string
	AssignmentIDs []string

	// Touched is set when anything that a reader can see changed, liveness aside.
	Touched bool
}

func (o *Output) reset() {
	*o = Output{
		Events: o.Events[:0], Changes: o.Changes[:0], Peers: o.Peers[:0], Forgotten: o.Forgotten[:0],
		Closed: o.Closed[:0], Conclusions: o.Conclusions[:0], Past: o.Past[:0],
		Claims: o.Claims[:0], Assignments: o.Assignments[:0], Conflicts: o.Conflicts[:0], Mass: o.Mass[:0],
		OrphanIDs: o.OrphanIDs[:0], ClaimIDs: o.ClaimIDs[:0], AssignmentIDs: o.AssignmentIDs[:0],
	}
}

// Forgotten is a peer that is gone for good, with the revision its shutdown fact was at, 0 for none.
type Forgotten struct {
	PeerKey
	ShutdownRevision uint64
}

// HasWrites reports whether the output asks for a transaction.
func (o *Output) HasWrites() bool {
	return len(o.Events)+len(o.Conclusions)+len(o.Forgotten)+len(o.Closed)+len(o.Past)+
		len(o.Claims)+len(o.Assignments)+len(o.Conflicts)+len(o.Mass) > 0
}

// SubscriptionKey names a subscription: names are unique within a group.
type SubscriptionKey struct {
	Group        string
	Subscription string
}

// begin opens an input: the state is first advanced to now, so that no input
// and no reader ever sees a deadline that has passed as still ahead.
func (c *Core) begin(now time.Time) *Output {
	c.out.reset()
	c.advance(now)
	return &c.out
}

// Tick advances the state to now: whatever has fallen due by then happens.
func (c *Core) Tick(now time.Time) *Output { return c.begin(now) }

// NextDue is the next instant at which Tick has something to do; zero when nothing is pending.
// It may be early, never late.
func (c *Core) NextDue() time.Time { return c.due.next() }

func (c *Core) group(name string) *group {
	g := c.groups[name]
	if g == nil {
		g = newGroup(name, c.settings(name))
		c.groups[name] = g
	}
	return g
}

func (c *Core) settings(name string) GroupSettings {
	if s, ok := c.cfg.Groups[name]; ok {
		return s
	}
	return c.cfg.Default
}

// HeartbeatTimeout is the timeout that rules a group.
func (c *Core) HeartbeatTimeout(group string) time.Duration {
	return c.settings(group).HeartbeatTimeout
}

func (c *Core) peer(k PeerKey) *peer {
	if g := c.groups[k.Group]; g != nil {
		return g.peers[k.InstanceID]
	}
	return nil
}

// admit creates a peer, or says which limit forbids it.
func (c *Core) admit(now time.Time, k PeerKey) (*peer, error) {
	if c.full(k.Group) {
		return nil, ErrLimit
	}
	return c.create(k, now), nil
}

// full reports whether a limit forbids one more peer in the group.
func (c *Core) full(name string) bool {
	g := c.groups[name]
	return c.peers >= c.cfg.MaxPeers || (g != nil && len(g.peers) >= c.cfg.MaxPeersPerGroup)
}

// dropGroup frees a group that nothing hangs on any more: names come from outside.
func (c *Core) dropGroup(g *group) {
	if len(g.peers)+len(g.subs) == 0 && g.mass.record == (MassRecord{}) && c.groups[g.name] == g {
		delete(c.groups, g.name)
	}
}

func (c *Core) create(k PeerKey, firstSeen time.Time) *peer {
	g := c.group(k.Group)
	p := &peer{key: k, group: g, status: StatusUnknown, since: firstSeen, firstSeen: firstSeen}
	g.peers[k.InstanceID] = p
	g.counts[StatusUnknown]++
	c.peers++
	c.out.Changes = append(c.out.Changes, Change{Key: k, To: StatusUnknown})
	c.out.Touched = true
	return p
}

// SetLeading tells the core whether its owner leads, and under which epoch. On taking over,
// everything that nobody concluded yet is concluded now; on losing it, conclusions stop.
func (c *Core) SetLeading(now time.Time, leading bool, epoch uint64) *Output {
	out := c.begin(now)
	c.leading, c.epoch = leading, epoch
	if leading {
		c.concludeAll(now)
	}
	out.Touched = true
	return out
}

// SetTokenFloor makes every later fencing token larger than floor (import and restore raise it).
func (c *Core) SetTokenFloor(floor uint64) { c.floor = max(c.floor, floor) }
