//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Sizes of what is rewritten: just below the largest Application that a principal takes,
// and as small as one can be.
const (
	large = 900 << 10
	small = 16
)

// source is where the agent's own Applications flow.
func (a *agent) own() stream.Collection {
	if a.mode == stream.Autonomous {
		return stream.Applications
	}
	return stream.Children
}

// onStream are the attacks of an agent on its stream, in order. Whatever they are told of
// what is beyond a bound, they go on.
func (a *agent) onStream() []onStream {
	contents := slices.Collect(maps.Values(bombs())) // they take longer than a turn
	return []onStream{
		{"rewrites of large objects", 0, func(l *line) error {
			return l.mannered(8, func(i, v int) stream.Event {
				return apply(fmt.Sprint("l.", v), a.own(), fmt.Sprint("large-", i), "u", body(v, large))
			})
		}},
		{"rewrites of small objects", 0, func(l *line) error {
			return l.mannered(512, func(i, v int) stream.Event {
				return apply(fmt.Sprint("s.", v), a.own(), fmt.Sprint("small-", i), "u", body(v, small))
			})
		}},
		{"large statuses", 0, func(l *line) error { return a.statuses(l, func(v int) []byte { return statusBody(v, large) }) }},
		{"ends of operations", 0, func(l *line) error { return a.statuses(l, ended) }},
		{"reconciliations", 0, func(l *line) error { return a.statuses(l, reconciled) }},
		{"projects", stream.Autonomous, func(l *line) error {
			return l.mannered(64, func(_, v int) stream.Event {
				return apply(fmt.Sprint("p.", v), stream.AppProjects, fmt.Sprint("project-", v), "u", projectBody(v, 60<<10))
			})
		}},
		{"projects of another agent", stream.Autonomous, func(l *line) error {
			// Joined to this agent's name, as on the hub, each is one of agent <name>-next.
			return l.mannered(8, func(i, v int) stream.Event {
				return apply(fmt.Sprint("o.", v), stream.AppProjects, fmt.Sprint("next-project-", i), "u", projectBody(v, small))
			})
		}},
		{"projects with dear patterns", stream.Autonomous, func(l *line) error {
			return l.mannered(16, func(i, v int) stream.Event {
				if i%2 == 1 {
					return apply(fmt.Sprint("d.", v), a.own(), fmt.Sprint("small-", i), "u", body(v, small))
				}
				return apply(fmt.Sprint("d.", v), stream.AppProjects, fmt.Sprint("project-", i), "u", dear(v))
			})
		}},
		{"projects of many entries", stream.Autonomous, func(l *line) error {
			return l.mannered(4, func(i, v int) stream.Event {
				return apply(fmt.Sprint("c.", v), stream.AppProjects, fmt.Sprint("project-", i), "u", crowded(v))
			})
		}},
		{"objects that are refused", 0, func(l *line) error {
			return l.mannered(64, func(i, v int) stream.Event {
				return apply(fmt.Sprint("f.", v), a.own(), fmt.Sprint("refused-", i), "u", refused(v, 64<<10))
			})
		}},
		{"new objects", 0, func(l *line) error {
			return l.mannered(256, func(_, v int) stream.Event {
				return apply(fmt.Sprint("n.", v), a.own(), "new-"+word(), word(), body(v, 1<<10))
			})
		}},
		{"objects that come and go", 0, func(l *line) error {
			return l.mannered(64, func(i, v int) stream.Event {
				name, id := fmt.Sprint("moth-", i), fmt.Sprint("m.", v)
				if v/64%2 == 0 {
					return apply(id, a.own(), name, word(), body(v, small))
				}
				return remove(id, a.own(), name)
			})
		}},
		{"events without waiting", 0, func(l *line) error {
			v := 0
			return l.both(func() error {
				events := make([]stream.Event, stream.MaxEvents)
				for i := range events {
					v++
					events[i] = apply(fmt.Sprint("w.", v), a.own(), fmt.Sprint("eager-", i), "u", body(v, 1<<10))
				}
				return l.batch(events...)
			}, nil)
		}},
		{"events without reading", 0, func(l *line) error {
			for v := 0; l.ctx.Err() == nil; v++ {
				if err := l.batch(apply(fmt.Sprint("r.", v), a.own(), fmt.Sprint("deaf-", v%64), "u", body(v, 4<<10))); err != nil {
					_, err = l.hear()
					return err
				}
			}
			return l.ctx.Err()
		}},
		{"answers without reading", 0, func(l *line) error {
			for i := 0; l.ctx.Err() == nil; i++ { // each asks for an answer
				m := []stream.Message{a.digests(i), stream.Buckets{Collection: a.own(), Sums: [stream.BucketCount]stream.Sum{{byte(i)}}}}[i%2]
				if err := l.send(stream.FrameOf(m)); err != nil {
					_, err = l.hear()
					return err
				}
			}
			return l.ctx.Err()
		}},
		{"contents that are bombs", 0, func(l *line) error {
			return l.mannered(2, bomb(a.own(), contents))
		}},
		{"statuses that are bombs", 0, func(l *line) error {
			return l.mannered(2, bomb(stream.Statuses, contents))
		}},
		{"digests", 0, func(l *line) error {
			i := 0
			return l.both(func() error { i++; return l.send(stream.FrameOf(a.digests(i))) }, nil)
		}},
		{"heartbeats", 0, func(l *line) error {
			i := 0
			return l.both(func() error {
				i++
				return l.send(stream.FrameOf(stream.Heartbeat{
					Digests:  a.digests(i).Digests,
					Absences: []stream.Absence{{Collection: a.own(), Entries: uint64(i) << 32}, {Collection: stream.Statuses, Entries: 1 << 62}},
				}))
			}, nil)
		}},
		{"buckets", 0, func(l *line) error { return buckets(l, a.own()) }},
		{"inventories", 0, func(l *line) error { return inventories(l, a.digests(1)) }},
		{"results", 0, func(l *line) error {
			v := 0
			return l.both(func() error {
				v++
				return l.send(stream.FrameOf(stream.Applied{Results: strangeResults(stream.Commands, v)}))
			}, nil)
		}},
		{"answers that change", stream.Managed, func(l *line) error {
			v := 0
			return l.both(func() error { v++; return l.send(stream.FrameOf(a.changes(v))) }, nil)
		}},
		{"histories", 0, func(l *line) error {
			return l.both(func() error { return l.send(stream.FrameOf(stream.History{Token: word()})) }, nil)
		}},
		{"cluster information", 0, func(l *line) error {
			v := int64(0)
			return l.both(func() error {
				v++
				return l.send(stream.FrameOf(stream.SpokeInfo{Applications: v, APIs: v, Resources: v, CacheSynced: time.Unix(v, 0), SentAt: time.Unix(v, 0)}))
			}, nil)
		}},
		{"events of Applications", 0, func(l *line) error {
			v := 0
			return l.both(func() error { v++; return l.send(stream.FrameOf(eventsOf(v))) }, nil)
		}},
		{"credentials", 0, func(l *line) error {
			return l.both(func() error {
				return l.send(&streampb.Frame{Body: &streampb.Frame_Credential{Credential: &streampb.Credential{Token: strings.Repeat("t", 8<<10)}}})
			}, nil)
		}},
		{"frames that nobody knows", 0, func(l *line) error {
			return l.both(func() error { return l.sendBytes(unknownFrame) }, nil)
		}},
		{"connections", 0, func(*line) error { return nil }}, // the next supersedes it
	}
}

// eventsOf is as much as one frame may say of Applications, each time something else.
func eventsOf(version int) stream.ApplicationEvents {
	var m stream.ApplicationEvents
	for i := range stream.MaxApplicationEvents {
		m.Events = append(m.Events, stream.ApplicationEvent{
			Name: fmt.Sprint("small-", (version*stream.MaxApplicationEvents+i)%512), Count: stream.MaxEventCount,
			EventText: stream.EventText{Type: stream.EventWarning, Reason: "R" + word(), Message: strings.Repeat("\x1b[2K", 200) + word()},
		})
	}
	return m
}

// unknownFrame has as many fields of no release of ours as we pass over.
var unknownFrame = []byte(strings.Repeat("\xf8\x7f\x01", 16000)) //nolint:gochecknoglobals // a constant

// statuses rewrites the statuses of what the agent has.
func (a *agent) statuses(l *line, content func(version int) []byte) error {
	if a.mode == stream.Autonomous {
		return l.mannered(8, func(i, v int) stream.Event {
			return apply(fmt.Sprint("t.", v), stream.Statuses, fmt.Sprint("small-", i), "u", content(v))
		})
	}
	return l.mannered(4, func(i, v int) stream.Event {
		names, versions := a.orders.all()
		if len(names) == 0 {
			return apply(fmt.Sprint("t.", v), stream.Statuses, "none", "u", content(v))
		}
		of := i % len(names)
		return apply(fmt.Sprint("t.", v), stream.Statuses, names[of], versions[of].SourceUID, content(v))
	})
}

// bomb returns one of all contents after the other.
func bomb(c stream.Collection, all [][]byte) func(i, version int) stream.Event {
	return func(_, v int) stream.Event {
		return apply(fmt.Sprint("b.", v), c, fmt.Sprint("small-", v%8), "u", all[v%len(all)])
	}
}

// digests are such that the other side finds a difference.
func (a *agent) digests(i int) stream.Digests {
	var d []stream.Digest
	for _, c := range stream.Collections() {
		if c.Source(a.mode) == stream.Hub {
			d = append(d, stream.Digest{Collection: c, Root: stream.Sum{byte(i), byte(i >> 8), byte(i >> 16)}, Entries: uint64(i)})
		}
	}
	return stream.Digests{Digests: d}
}

// buckets asks what the other side holds, again as soon as it has the answer.
func buckets(l *line, c stream.Collection) error {
	ask := func(i int) error {
		return l.send(stream.FrameOf(stream.Buckets{Collection: c, Sums: [stream.BucketCount]stream.Sum{{byte(i)}, {byte(i >> 8)}}}))
	}
	if err := ask(0); err != nil {
		return err
	}
	i := 0
	return l.both(nil, func(f *streampb.Frame) error {
		if inventory := f.GetInventory(); inventory == nil || inventory.GetMore() {
			return nil
		}
		i++
		return ask(i)
	})
}

// inventories claims to hold whatever it is asked about, without an end.
func inventories(l *line, begin stream.Digests) error {
	if err := l.send(stream.FrameOf(begin)); err != nil {
		return err
	}
	return l.both(nil, func(f *streampb.Frame) error {
		asked := f.GetBuckets()
		if asked == nil {
			return nil
		}
		var every stream.BucketSet
		for b := range stream.BucketCount {
			every.Add(uint8(b)) //nolint:gosec // below 256
		}
		for _, c := range stream.Collections() {
			if stream.FrameOf(stream.Buckets{Collection: c}).GetBuckets().GetCollection() != asked.GetCollection() {
				continue
			}
			for l.ctx.Err() == nil {
				entries := make([]stream.Entry, stream.MaxEntries)
				for i := range entries {
					entries[i] = stream.Entry{Name: "held-" + word(), Version: stream.Version{SourceUID: "u", Hash: stream.Hash{1}}}
				}
				if err := l.send(stream.FrameOf(stream.Inventory{Collection: c, Buckets: every, Entries: entries, More: true})); err != nil {
					return err
				}
			}
		}
		return l.ctx.Err()
	})
}

// strangeResults is as much as one Applied may have, of what was never asked.
func strangeResults(c stream.Collection, version int) []stream.Result {
	out := make([]stream.Result, 512)
	for i := range out {
		out[i] = stream.Result{
			Key:   stream.EntryKey{Collection: c, Name: fmt.Sprint("small-", i)},
			Event: fmt.Sprint("e.", i, ".", version), Held: stream.Version{SourceUID: "u", Hash: stream.Hash{byte(version)}},
			Refusal: &stream.Refusal{Kind: stream.RefusalDenied, Message: strings.Repeat("\x1b[2K", 200)},
			Undone:  strings.Repeat("u", 1000), Dropped: []string{strings.Repeat("d", 200), word()},
		}
	}
	return out
}

// changes are unasked reports about what the hub asked for: held, refused, dropped and
// undone in turn, so that the hub has something to write each time.
func (a *agent) changes(version int) stream.Applied {
	names, versions := a.orders.all()
	var out []stream.Result
	for i, name := range names {
		r := stream.Result{Key: stream.EntryKey{Collection: stream.Applications, Name: name}}
		switch version % 4 {
		case 0:
			r.Held = versions[i]
		case 1:
			r.Refusal = &stream.Refusal{Kind: stream.RefusalDenied, Message: fmt.Sprint("refused ", version)}
		case 2:
			r.Held, r.Dropped = versions[i], []string{fmt.Sprint("spec.dropped", version)}
		default:
			r.Held, r.Undone, r.Retry = versions[i], fmt.Sprint("spec.undone", version), true
		}
		out = append(out, r)
	}
	return stream.Applied{Results: out}
}
