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

func (in *inbound) noteStored(s *sink, stored Stored) []Action {
	if size, ok := in.open[stored.Event]; ok {
		in.bytes -= size
		delete(in.open, stored.Event)
	}
	if stored.Version.Absent() {
		stored.Dropped = nil
	}
	changed := s.set(stored.Key, in.ends.sharing(stored.Key, stored.Version))
	changed = s.drop(stored.Key, stored.Dropped) || changed
	if in.conn.stage != away && (changed || stored.Event != "") {
		if len(in.results) == maxUnsent {
			return []Action{Disconnect{Cause: CauseStalled}} // the next digest tells it all
		}
		in.results = append(in.results, stream.Result{
			Key: stored.Key, Event: stored.Event, Held: stored.Version, Refusal: stored.Refusal,
			Undone: stored.Undone, Dropped: stored.Dropped, Retry: stored.Retry,
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
