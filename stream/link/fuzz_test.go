package link_test

import (
	"slices"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
	"github.com/argomesh/argomesh/test/heap"
)

// mostStep is what a byte of a program may take of the heap: it may be a message that is
// answered with the sums of all buckets.
const mostStep = 64 << 10

// FuzzStep runs a program of what may happen to one end of a link, above all of
// messages that no peer of ours would send. The end never panics, never has more
// under way than its bounds say, and always knows when it must be looked at again.
func FuzzStep(f *testing.F) {
	for side := range byte(4) {
		// connect, digests, inventory, desires, flush, answers
		f.Add([]byte{side, 0, 3, 0, 0, 1, 4, 0, 9, 1, 2, 9, 1, 6, 1, 0, 1, 13, 200, 13, 255})
		// connect, unsupported and known events, answers, goodbye
		f.Add([]byte{side, 0, 5, 1, 1, 5, 2, 1, 5, 7, 3, 10, 1, 1, 13, 1, 6, 2, 2, 3, 8, 0})
		// connect, hold, be asked, deletions, check, accept
		f.Add([]byte{side, 0, 10, 1, 1, 10, 2, 2, 2, 0, 13, 0, 2, 0, 5, 8, 1, 5, 9, 2, 11, 0, 11, 1, 12, 13, 50, 7, 1})
		// connect, digests, an end, held, checked in a place that goes, accepted
		f.Add([]byte{side, 0, 1, 2, 0, 0, 1, 9, 1, 1, 1, 1, 16, 3, 1, 17, 0, 1, 11, 0, 1, 16, 0, 1, 12, 1, 13, 200, 1})
		// desire, connect, digests, be believed, deletion seen, check, flush
		f.Add([]byte{side, 9, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 18, 1, 0, 1, 9, 1, 0, 0, 1, 11, 0, 1, 13, 1, 1})
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) == 0 {
			return
		}
		took := heap.Of(func() {
			p := newProgram(t, program)
			for p.left() {
				p.act()
			}
		})
		if most := uint64(mostStep * (len(program) + 1)); took > most {
			t.Errorf("%d bytes of a program take %d of heap, want %d at most", len(program), took, most)
		}
	})
}

// program is one end of a link, and the bytes from which all that happens follows.
type program struct {
	fail       func(format string, args ...any)
	bytes      []byte
	cfg        link.Config
	link       *link.Link
	now        time.Time
	connection byte
	sent       map[string]bool            // events of ours that are not settled
	taken      map[string]stream.EntryKey // events of the peer that are not answered
	judge      bool
}

func newProgram(t testing.TB, code []byte) *program {
	p := &program{
		fail: t.Fatalf, bytes: code, now: time.Unix(1_700_000_000, 0),
		sent: map[string]bool{}, taken: map[string]stream.EntryKey{},
	}
	shape := p.next()
	p.cfg = link.Config{Side: stream.Hub + stream.Side(shape&1), Mode: stream.Managed + stream.Mode(shape>>1&1), Window: 3, WindowBytes: 64}
	p.cfg.Guard = p.cfg.Side == stream.Hub
	p.link = link.New(p.cfg)
	return p
}

func (p *program) left() bool { return len(p.bytes) > 0 }

// next is the next byte; zero when there is none.
func (p *program) next() byte {
	if !p.left() {
		return 0
	}
	b := p.bytes[0]
	p.bytes = p.bytes[1:]
	return b
}

// key is of any collection, those that flow the other way and none included.
func (p *program) key() stream.EntryKey {
	b := p.next()
	return stream.EntryKey{
		Collection: stream.Collection(b % 7), Namespace: []string{"", "team"}[b>>6&1], Name: string(rune('a' + b>>3&3)),
	}
}

func (p *program) version() stream.Version {
	b := p.next()
	if b%4 == 0 {
		return stream.Version{}
	}
	return stream.Version{SourceUID: string(rune('u' + b>>4&1)), Hash: stream.HashOf([]byte{b & 3})}
}

// id is that of an event that was sent, or of any other.
func (p *program) id() string {
	b := p.next()
	if id := least(p.sent); b&1 == 0 && id != "" {
		return id
	}
	return string(rune('a' + b>>1))
}

// least is the first key of m; empty when there is none.
func least[V any](m map[string]V) string {
	first := ""
	for id := range m {
		if first == "" || id < first {
			first = id
		}
	}
	return first
}

func (p *program) collection() stream.Collection { return stream.Collection(p.next() % 7) }

func (p *program) buckets() (set stream.BucketSet) {
	switch b := p.next(); b & 3 {
	case 0:
	case 1:
		set.Add(b)
	default:
		set = all()
	}
	return set
}

func (p *program) digests() []stream.Digest {
	return []stream.Digest{
		{Collection: p.collection(), Entries: uint64(p.next() & 1)},
		{Collection: p.collection(), Root: stream.Sum{p.next()}},
	}
}

func (p *program) absences() []stream.Absence {
	return []stream.Absence{{Collection: p.collection(), Entries: uint64(p.next()) << (p.next() & 63)}}
}

func (p *program) event() stream.Event {
	e := stream.Event{ID: string(rune('a' + p.next())), Verb: stream.Apply, Key: p.key(), Version: p.version(), Data: []byte("{}")}
	if e.Version.Absent() {
		e.Verb, e.Data = stream.Delete, nil
	}
	return e
}

// message is one that ParseFrame may return.
func (p *program) message(kind byte) stream.Message {
	switch kind {
	case 1:
		return stream.Digests{Digests: p.digests()}
	case 2:
		return stream.Buckets{Collection: p.collection(), Sums: [stream.BucketCount]stream.Sum{{p.next()}}}
	case 3:
		return stream.Heartbeat{Digests: p.digests(), Absences: p.absences()}
	case 4:
		m := stream.Inventory{Collection: p.collection(), Buckets: p.buckets()}
		for flags := p.next(); flags > 0; flags >>= 2 {
			m.More = flags&2 != 0
			key, version := p.key(), p.version()
			if version.Absent() {
				continue // ParseFrame takes none
			}
			m.Entries = append(m.Entries, stream.Entry{Namespace: key.Namespace, Name: key.Name, Version: version})
		}
		return m
	case 5:
		m := stream.Batch{Absences: p.absences()}
		for n := p.next() & 3; n > 0; n-- {
			m.Events = append(m.Events, p.event())
		}
		if p.next()&1 != 0 {
			m.Unsupported = []stream.Unsupported{{ID: p.id(), Type: "io.argomesh.secret.apply"}}
		}
		return m
	case 6:
		r := stream.Result{Key: p.key(), Event: p.id(), Held: p.version()}
		switch p.next() & 3 {
		case 0:
			r.Refusal = &stream.Refusal{Kind: stream.RefusalInvalid}
		case 2:
			r.Event = ""
		case 1:
			r = stream.Result{Event: r.Event, Refusal: &stream.Refusal{Kind: stream.RefusalUnsupported}}
		}
		return stream.Applied{Results: []stream.Result{r}}
	case 7:
		return stream.Goodbye{}
	}
	return stream.SpokeInfo{}
}

// act does what the next bytes say.
func (p *program) act() {
	switch op := p.next() % 19; op {
	case 0:
		p.connection++
		clear(p.sent)
		clear(p.taken)
		p.judge = false
		p.step(link.Connected{ID: string(rune('A' + p.connection)), SeenDeletes: p.connection&1 != 0})
	case 1, 2, 3, 4, 5, 6, 7, 8:
		p.step(link.Received{Message: p.message(op)})
	case 9:
		key, v, flags := p.key(), p.version(), p.next()
		p.step(link.Desired{Key: key, Version: v, Leaving: flags&1 != 0, Accepted: flags&6 == 6})
	case 10:
		p.step(link.Stored{Key: p.key(), Version: p.version()})
	case 11:
		if p.judge {
			p.judge = false
			p.step([]link.HistoryChecked{{}, {}, {Broken: "restored"}, {Unknown: true}}[p.next()&3])
		}
	case 12:
		p.step(link.Accepted{ID: p.link.Withheld().ID})
	case 13:
		p.now = p.now.Add(time.Duration(p.next()) * 100 * time.Millisecond)
		p.step(link.Tick{})
	case 14:
		waits := []link.Pause{link.PauseNone, link.PauseAll, link.PauseChanges, link.PauseAll}[p.next()&3]
		p.step(link.Paused{Collection: p.collection(), Waits: waits})
	case 15:
		if id := least(p.taken); id != "" {
			key := p.taken[id]
			delete(p.taken, id)
			p.step(link.Stored{Key: key, Event: id, Version: p.version()})
		}
	case 16:
		flags := p.next()
		p.step(link.Cascades{Held: []string{"", "too many"}[flags&1], Counting: flags&2 != 0})
	case 17:
		p.step(link.Doomed{Namespaces: map[string]string{[]string{"", "team"}[p.next()&1]: "it goes"}})
	case 18:
		p.step(link.Seen{Key: p.key(), UID: string(rune('u' + p.next()&1)), Revision: 7})
	}
}

// step is what the caller of a link does.
func (p *program) step(in link.Input) {
	p.obey(p.link.Step(p.now, in))
	if p.next()&1 != 0 {
		p.flush()
	}
	if len(p.taken) > 2048 {
		p.fail("%d events are taken and not answered", len(p.taken))
	}
	if w := p.link.Withheld(); w.Total < len(w.Keys) || (w.Total > 0) != (w.ID != "") {
		p.fail("it withholds %+v", w)
	} else if slices.ContainsFunc(w.Ending, func(key stream.EntryKey) bool { return !slices.Contains(w.Keys, key) }) || w.Cascades != "" && len(w.Ending) == 0 {
		p.fail("of what it withholds %+v", w)
	}
	p.link.Ending()
	p.link.Parked()
	p.link.Agreed()
}

func (p *program) obey(actions []link.Action) {
	for _, action := range actions {
		switch a := action.(type) {
		case link.Apply:
			p.taken[a.Event.ID] = a.Event.Key
		case link.Answered:
			delete(p.sent, least(p.sent)) // which one does not matter to their number
		case link.CheckHistory:
			p.judge = true
		case link.Disconnect:
			if (a.Cause == link.CauseProtocol) != (a.Violation != "") {
				p.fail("it disconnects with %+v", a)
			}
			clear(p.sent)
			clear(p.taken)
			p.judge = false
			p.link.Step(p.now, link.Disconnected{})
			return
		}
	}
}

func (p *program) flush() {
	p.obey(p.link.Step(p.now, link.Tick{}))
	for _, m := range p.link.Flush(p.now, p.load) {
		if parsed, err := stream.ParseFrame(stream.FrameOf(m)); err != nil || parsed == nil {
			p.fail("it says %+v, which no peer takes: %v", m, err)
		}
		batch, ok := m.(stream.Batch)
		if !ok {
			continue
		}
		for _, e := range batch.Events {
			if e.Key.Collection.Source(p.cfg.Mode) != p.cfg.Side {
				p.fail("it sends %s, of which it is no source", e.Key)
			}
			p.sent[e.ID] = true
		}
	}
	if len(p.sent) > p.cfg.Window {
		p.fail("%d events are under way, the window is %d", len(p.sent), p.cfg.Window)
	}
	if next := p.link.Next(); !next.IsZero() && !next.After(p.now) {
		p.fail("after all was done it is to be looked at %s ago", p.now.Sub(next))
	}
}

// load knows of each entry what its name says.
func (p *program) load(key stream.EntryKey) (link.Content, bool) {
	if key.Name == "a" {
		return link.Content{}, false
	}
	data := []byte(key.Name + key.Namespace)
	return link.Content{
		Version: stream.Version{SourceUID: "u", Hash: stream.HashOf(data)}, Data: data, Revision: 1, Leaving: key.Name == "b",
	}, true
}
