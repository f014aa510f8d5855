package link

import "github.com/argomesh/argomesh/stream"

// ends are the collections of a link: those of which this side is the source, in sending
// order, and those of which it is the sink.
type ends struct {
	sources []*source
	sinks   []*sink
}

func (e *ends) source(c stream.Collection) *source {
	for _, s := range e.sources {
		if s.collection == c {
			return s
		}
	}
	return nil
}

func (e *ends) sink(c stream.Collection) *sink {
	for _, s := range e.sinks {
		if s.collection == c {
			return s
		}
	}
	return nil
}

// sharing is v with its source UID in the memory of the same one of another entry of
// that name, if there is one: a copy is an entry of two collections, messages and
// objects each bring a UID of their own, and one for each entry stays.
func (e *ends) sharing(key stream.EntryKey, v stream.Version) stream.Version {
	if v.Absent() {
		return v
	}
	for _, s := range e.sources {
		if one := s.entries.get(key); one != nil && one.desired.SourceUID == v.SourceUID {
			v.SourceUID = one.desired.SourceUID
			return v
		}
	}
	for _, s := range e.sinks {
		if held := s.stored.get(key); held.SourceUID == v.SourceUID {
			v.SourceUID = held.SourceUID
			return v
		}
	}
	return v
}

func (e *ends) digests() []stream.Digest {
	digests := make([]stream.Digest, len(e.sinks))
	for i, s := range e.sinks {
		digests[i] = s.tally.digest(s.collection)
	}
	return digests
}

// changedRefusals are the actions for what has become contested, or is no more, and for what was
// refused and is held.
func (e *ends) changedRefusals() []Action {
	var actions []Action
	for _, s := range e.sources {
		for _, key := range s.contestChanges {
			actions = append(actions, Contested{Key: key})
		}
		for _, key := range s.refusalsEnded {
			actions = append(actions, RefusalEnded{Key: key})
		}
		s.contestChanges, s.refusalsEnded = nil, nil
	}
	return actions
}

// handle tells a source what its caller says of an entry, or of all.
func (e *ends) handle(in Input) {
	switch in := in.(type) {
	case Desired:
		if s := e.source(in.Key.Collection); s != nil {
			s.desire(in.Key, e.sharing(in.Key, in.Version), in.Leaving)
			if in.Accepted {
				s.acceptEnding(in.Key)
			}
		}
	case Proven:
		if s := e.source(in.Key.Collection); s != nil {
			s.resume(in.Key)
		}
	case Paused:
		if s := e.source(in.Collection); s != nil {
			s.pause(in)
		}
	}
}
