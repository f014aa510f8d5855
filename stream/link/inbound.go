package link

import "github.com/argomesh/argomesh/stream"

// inbound is what came of the peer and is not answered yet, and the answers that wait.
type inbound struct {
	ends    *ends
	conn    *connection
	open    map[string]int // events received and not yet answered, with their bytes
	bytes   int            // of open
	results []stream.Result
}

func (in *inbound) noteStored(s *sink, h Held) []Action {
	if size, ok := in.open[h.Event]; ok {
		in.bytes -= size
		delete(in.open, h.Event)
	}
	if h.Version.Absent() {
		h.Dropped = nil
	}
	changed := s.set(h.Key, in.ends.sharing(h.Key, h.Version))
	changed = s.drop(h.Key, h.Dropped) || changed
	if in.conn.stage != away && (changed || h.Event != "") {
		if len(in.results) == maxUnsent {
			return []Action{Disconnect{Cause: CauseStalled}} // the next digest tells it all
		}
		in.results = append(in.results, stream.Result{
			Key: h.Key, Event: h.Event, Held: h.Version, Refusal: h.Refusal,
			Undone: h.Undone, Dropped: h.Dropped, Retry: h.Retry,
		})
	}
	return nil
}

// retry tells the peer that what was refused of an entry may be taken now.
func (in *inbound) retry(s *sink, key stream.EntryKey) {
	if in.conn.stage != away && len(in.results) < maxUnsent {
		r := s.result(key)
		r.Retry = true
		in.results = append(in.results, r)
	}
}
