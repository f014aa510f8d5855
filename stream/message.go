package stream

import "time"

// Message is what one side says to the other on an open connection, after the
// handshake. The types of this file implement it.
type Message interface{ message() }

// Digest is a commutative sum over the entries a sink holds of one collection.
type Digest struct {
	Collection Collection
	Root       Sum
	Entries    uint64
}

// Sum is a sum of entry hashes, as a number of 128 bits, little endian, modulo
// 2^128. The zero value is the sum of no entries.
type Sum [16]byte

// BucketCount is the number of buckets that a collection is divided into.
const BucketCount = 256

// BucketSet is a set of bucket numbers.
type BucketSet [BucketCount / 8]byte

// Add puts bucket b into the set.
func (s *BucketSet) Add(b uint8) { s[b/8] |= 1 << (b % 8) }

// Has reports whether bucket b is in the set.
func (s *BucketSet) Has(b uint8) bool { return s[b/8]&(1<<(b%8)) != 0 }

// Empty reports whether no bucket is in the set.
func (s *BucketSet) Empty() bool { return *s == BucketSet{} }

// Digests is what a side holds of all its sinks; it begins a connection.
type Digests struct{ Digests []Digest }

// Buckets is a source's view of what the sink holds, bucket by bucket.
type Buckets struct {
	Collection Collection
	Sums       [BucketCount]Sum
}

// Inventory lists what a sink holds in the buckets whose sums differ.
type Inventory struct {
	Collection Collection
	Buckets    BucketSet
	Entries    []Entry
	// More says that another Inventory of the same answer follows. Buckets is the
	// same in each.
	More bool
}

// Entry is one held entry of an Inventory.
type Entry struct {
	Namespace, Name string
	Version         Version
}

// Batch carries events, in no promised order, at most one for an entry.
type Batch struct {
	Events   []Event
	Absences []Absence
	// Unsupported are the events that this release does not know. A sender has none.
	Unsupported []Unsupported
}

// Unsupported is an event of a kind or a verb of which we know no more than that a
// peer may send it. It is answered by its id, and nothing else becomes of it.
type Unsupported struct {
	ID   string
	Type string // of the CloudEvent; at most 255 bytes of the peer's choice
}

// Absence says how many entries of a collection a source does not have while the
// sink is known to hold them, those on their way included.
type Absence struct {
	Collection Collection
	Entries    uint64
}

// Applied says what became of entries.
type Applied struct{ Results []Result }

// Result is the state of one entry at its sink: the answer to an event, or,
// with Event empty, an unasked report.
type Result struct {
	// Key is zero in the answer to an event that the sink's release does not know:
	// the id of the event says which entry it was about, and there is a Refusal.
	Key     EntryKey
	Event   string  // id of the event answered
	Held    Version // absent when the sink holds nothing
	Refusal *Refusal
	// Undone names for people what was applied before, what someone on the sink's side
	// had changed since, and what this event put back; empty for nothing. It has paths
	// of fields, and no value.
	Undone string
	// Dropped are the paths of what is held that the sink's API server does not keep,
	// sorted, at most MaxDropped. A peer that does not say keeps all, or does not know.
	Dropped []string
	// Retry says in an unasked report that what was refused may be taken now. With a Held
	// that is not what was sent it says that no one has changed that: the sink is to have
	// the entry again, since its own definitions or policy are others now.
	Retry bool
}

// MaxDropped is the largest number of paths that a Result names.
const MaxDropped = 16

// Heartbeat shows that the peer lives, and what it holds. Absences has each
// collection whose source is at the sender and knows what the sink holds.
type Heartbeat struct {
	Digests  []Digest
	Absences []Absence
}

// History says where the hub's state stands. Sent by a principal before anything
// else and whenever it changes; by an agent, with Token alone, as the answer that
// it keeps that token.
type History struct {
	// ID names the history; revisions are comparable within one only. Empty before
	// there is one.
	ID string
	// Token is the newest; empty before there is one.
	Token string
	// Revision is a resourceVersion that the hub has reached; zero when not known.
	Revision uint64
}

// SpokeInfo is what an agent knows of its Argo CD's cluster cache.
type SpokeInfo struct {
	// Applications is the number of Applications that the spoke's Argo CD runs.
	Applications int64
	// APIs and Resources are what its cluster cache watches and holds.
	APIs, Resources int64
	// CacheSynced is when the cache was last synced; zero when not known.
	CacheSynced time.Time
	// SentAt is when this was sent, by the same clock as CacheSynced, which is the
	// spoke's and may be years off; zero when not known.
	SentAt time.Time
}

// ApplicationEvents is what a spoke's Argo CD said of Applications. It is a message and no
// collection: what is lost with a connection is not sent again.
type ApplicationEvents struct{ Events []ApplicationEvent }

// ApplicationEvent is one thing that a spoke's Argo CD said, as often as Count tells.
type ApplicationEvent struct {
	// Namespace and Name are those of the Application, as in EntryKey.
	Namespace, Name string
	EventText
	// Count is from 1 to MaxEventCount.
	Count int
	// First and Last are how long ago it was said, at the moment of sending, in whole
	// seconds up to MaxEventAge; First is not less than Last.
	First, Last time.Duration
}

// EventText is what an event says.
type EventText struct {
	Type    EventType
	Reason  string // satisfies ValidEventReason
	Message string // for a person: one printable line of at most 1 KiB
}

// EventType is a closed set.
type EventType string

// The types of events that Kubernetes knows.
const (
	EventNormal  EventType = "Normal"
	EventWarning EventType = "Warning"
)

// Goodbye announces the planned end of a connection.
type Goodbye struct{ Reason GoodbyeReason }

// GoodbyeReason is a closed set.
type GoodbyeReason string

const (
	// GoodbyeDrain says that the process stops; connect again.
	GoodbyeDrain GoodbyeReason = "drain"
	// GoodbyeSuperseded says that a newer connection of the same agent took over.
	GoodbyeSuperseded GoodbyeReason = "superseded"
	// GoodbyeRevoked says that the registry no longer admits the agent.
	GoodbyeRevoked GoodbyeReason = "revoked"
	// GoodbyeProtocol says that the receiver broke the protocol.
	GoodbyeProtocol GoodbyeReason = "protocol"
)

func (Digests) message()           {}
func (Buckets) message()           {}
func (Inventory) message()         {}
func (Batch) message()             {}
func (Applied) message()           {}
func (Heartbeat) message()         {}
func (Goodbye) message()           {}
func (History) message()           {}
func (SpokeInfo) message()         {}
func (ApplicationEvents) message() {}

// Verb says what an event asks of the sink.
type Verb uint8

func (v Verb) String() string {
	switch v {
	case Apply:
		return "apply"
	case Delete:
		return "delete"
	}
	return ""
}

// Event is one entry of a collection on its way from source to sink.
type Event struct {
	// ID is unique among the events of the sender's process; the answer names it.
	ID      string
	Key     EntryKey
	Verb    Verb
	Version Version // of Data; absent with Delete
	// Deleted is, with Delete, the UID of the object whose deletion was seen at Revision, or
	// with no Revision that of what the sink held as far as the source knew: what came since,
	// of another connection perhaps, is not what it is about. It is empty from an older peer,
	// which says no more than that the source has nothing.
	Deleted string
	// Revision is the resourceVersion at which the source read the object, or with
	// Deleted that of its deletion; zero with any other Delete.
	Revision uint64
	// TraceParent is the W3C trace context of the change; may be empty.
	TraceParent string
	// Data is the source's canonical form of the object, JSON.
	Data []byte
	// GiveUp says of a Delete that the object stays, as it is and without our marks:
	// it is no longer mirrored, and its owner goes on with it. Needs capability GiveUp.
	GiveUp bool
}
