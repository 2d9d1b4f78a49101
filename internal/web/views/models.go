package views

// Page is what every page has around its content.
type Page struct {
	// Title is the document's title, with the number of open orphans in front when there are any.
	Title string
	// Theme is light, dark or "" for the system's.
	Theme string
	// LocalTime shows wall-clock times in the browser's zone instead of UTC.
	LocalTime bool
	// RefreshOn: the page keeps itself up to date.
	RefreshOn bool
	// OpenOrphans chooses the favicon.
	OpenOrphans int
	Assets      Assets
	Links       PageLinks
	Header      Header
}

// Assets are the addresses of the static files, with their content hashes.
type Assets struct {
	CSS, Icon, IconAlert, HTMX, Morph, Live string
}

// PageLinks are addresses of the current view in other modes, and of what stands beside it.
type PageLinks struct {
	Home, Docs, Stream                 string
	RefreshOn, RefreshOff              string
	TimeUTC, TimeLocal                 string
	ThemeSystem, ThemeLight, ThemeDark string
	// HeaderPart is where the header's live part is fetched from; so are the Part fields of the other models.
	HeaderPart string
}

// Header tells who leads and what the parts of the service do.
type Header struct {
	// Leader is the identity that leads, "" for nobody.
	Leader string
	Epoch  uint64
	// Replica is this replica, shown when another one leads.
	Replica string
	// Following: another replica leads.
	Following bool
	Parts     []Part
	Version   string
}

// Part is the health of the store, the bus or the elector.
type Part struct {
	Name, Kind, Reason string
	Ready              bool
}

// BannerTone is how loud a banner is.
type BannerTone string

// The tones.
const (
	ToneInfo  BannerTone = "info"
	ToneWarn  BannerTone = "warn"
	ToneAlert BannerTone = "alert"
)

// Banner is one thing that a reader must know before the numbers.
type Banner struct {
	ID    string
	Tone  BannerTone
	Title string
	// Text may end in an instant, shown after it.
	Text  string
	Until *Instant
}

// Overview is the page at /.
type Overview struct {
	Page    Page
	Glance  Glance
	Filter  Filter
	Peers   PeerTable
	Orphans OrphanList
	Events  EventList
	// Empty, when set, replaces the lists: no peer was ever heard.
	Empty *Empty
}

// Glance is the counts and the banners; it also carries what the browser's tab shows.
type Glance struct {
	Part string
	// DocTitle and OpenOrphans keep the tab's title and icon up to date.
	DocTitle    string
	OpenOrphans int
	// Summary is read out by screen readers when it changes.
	Summary string
	Tiles   []Tile
	Banners []Banner
}

// Tile is one count, linked to the list of what it counts.
type Tile struct {
	// Key is a status, "all" or "orphan"; it names icon and colour.
	Key, Label string
	Count      string
	// Zero dims the tile.
	Zero bool
	// Note is a second line, like "2 overdue".
	Note   string
	Href   string
	Active bool
}

// Filter is the form above the peers.
type Filter struct {
	Action string
	Q      string
	Groups []Choice
	Status []Choice
	// Keep are values of the address that the form does not show.
	Keep []Hidden
	// Clear is the address without any filter, "" when none is set.
	Clear string
}

// Choice is one option of a select.
type Choice struct {
	Value, Label string
	Selected     bool
}

// Hidden is a form value that is carried along.
type Hidden struct{ Name, Value string }

// Instant is a moment: machine-readable, with the text that a page without script shows.
type Instant struct {
	// RFC3339 is UTC with milliseconds.
	RFC3339 string
	Text    string
}

// Status is a status as badge: icon, text and colour.
type Status struct {
	// Key is one of the five statuses, or overdue or orphan.
	Key, Label string
}

// PeerTable is one page of peers.
type PeerTable struct {
	Part string
	// Shown says how many there are, and how many of them are here.
	Shown string
	Rows  []PeerRow
	// ShowGroup: rows of more than one group are possible.
	ShowGroup bool
	First     string
	Next      string
	// Clear is offered when nothing matches.
	Clear string
}

// PeerRow is one peer.
type PeerRow struct {
	ID, Name, Group, Href string
	Status                Status
	// Flags are short remarks, like "leads", "id conflict" or "clock +1 h".
	Flags    []string
	LastSeen *Instant
	Drain    *Drain
	Subs     []string
	// SubsMore counts subscriptions that are not listed.
	SubsMore string
	Load     *Load
	Version  string
	Spark    *Spark
	Orphans  string
}

// Drain is what is left of a drain window.
type Drain struct {
	Deadline Instant
	// Overdue: the deadline has passed and work is still in flight.
	Overdue bool
	// Over: the window has ended; Early: the peer had finished before it did.
	Over, Early bool
	Intent      string
	InFlight    string
}

// Load is a load factor with a bar of 0 to 40 units.
type Load struct {
	Text  string
	Width string
	High  bool
}

// Spark is a small drawing of heartbeat intervals.
type Spark struct {
	// Path draws the intervals, Late those above the timeout.
	Path, Late string
	// Limit is the height of the timeout line, "" when it is out of the picture.
	Limit string
	Label string
	Width string
}

// OrphanList is the open orphans.
type OrphanList struct {
	Part      string
	Total     string
	Rows      []OrphanRow
	ShowGroup bool
	// Toggle shows or hides the resolved ones.
	Toggle, ToggleLabel string
	More                string
}

// OrphanRow is one orphan.
type OrphanRow struct {
	ID, Subscription, Group string
	Peer, PeerHref          string
	Cause                   Status
	Opened                  Instant
	Deadline                *Drain
	Claim                   Claim
	CoveredBy               string
	Held                    *Instant
	// Resolution is set for resolved ones.
	Resolution string
	Resolved   *Instant
}

// Claim says who takes an orphan over.
type Claim struct {
	// State is none, ready or waiting.
	State string
	// Holder is the claimant, "" for none.
	Holder, HolderHref string
	Token              string
	// NotBefore is the estimate of when it turns ready.
	NotBefore *Instant
}

// EventList is the newest events.
type EventList struct {
	Part      string
	Rows      []EventRow
	ShowGroup bool
}

// EventRow is one event.
type EventRow struct {
	ID, Type string
	// Tone is the icon-less colour of the line: a status key, orphan, or "".
	Tone           string
	At             Instant
	Group          string
	Peer, PeerHref string
	Text           string
}

// Empty is shown before the first heartbeat.
type Empty struct {
	Part string
	Curl string
}

// Detail is the page of one peer.
type Detail struct {
	Page    Page
	Glance  Glance
	Peer    PeerDetail
	Orphans OrphanList
	Events  EventList
}

// PeerDetail is all that is known of one peer.
type PeerDetail struct {
	Part  string
	Row   PeerRow
	Facts []Fact
	Subs  []string
	Spark *Spark
	// Intervals describes the drawing in words.
	Intervals string
	Labels    []Fact
	Metadata  string
}

// Fact is one line of a description.
type Fact struct {
	Name, Text string
	// At, when set, is shown after the text.
	At *Instant
	// Age shows At as an age.
	Age bool
}

// Failure is an error page.
type Failure struct {
	Page   Page
	Status int
	Title  string
	Text   string
}
