package mirror

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Bounds limit the objects that the peer may have on this side. What is larger, or more,
// is refused as over-limit. An object that is there already is not refused for the number,
// nor for its size where it was larger before. A zero is no limit.
type Bounds struct {
	// Applications and AppProjects are how many copies there may be.
	Applications, AppProjects int
	// ApplicationBytes and AppProjectBytes are the most that one may have, as JSON without
	// metadata.managedFields.
	ApplicationBytes, AppProjectBytes int
	// TotalBytes is the most that all may have together. An object that is there and stays
	// below 64 KiB is not refused for it.
	TotalBytes int64
}

// DefaultBounds are those of a peer of which nobody said anything.
func DefaultBounds() Bounds {
	return Bounds{Applications: 1000, AppProjects: 50, ApplicationBytes: 1 << 20, AppProjectBytes: 64 << 10, TotalBytes: 256 << 20}
}

// smallBytes is the size up to which an object that is there grows beyond TotalBytes.
const smallBytes = 64 << 10

// room is what the bounds leave for one object.
type room struct {
	bounds Bounds
	// others are those of its kind, and bytes is what all others have.
	others int
	bytes  int64
}

// admits returns why the writes of a plan are not to be made; nil when they may. The
// object has before bytes now; zero when there is none.
func (r room) admits(side stream.Side, kind stream.Kind, writes []Write, before int) *stream.Refusal {
	for _, w := range writes {
		if w.Op != Create && w.Op != Update {
			continue
		}
		if refusal := r.admit(side, kind, before == 0, len(w.Raw), before); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (r room) admit(side stream.Side, kind stream.Kind, isNew bool, size, before int) *stream.Refusal {
	most, number, sizeKey, numberKey := r.bounds.ApplicationBytes, r.bounds.Applications, "applicationBytes", "applications"
	if kind == stream.AppProject {
		most, number, sizeKey, numberKey = r.bounds.AppProjectBytes, r.bounds.AppProjects, "appProjectBytes", "appProjects"
	}
	switch {
	case isNew && number > 0 && r.others >= number:
		return overLimit(side, numberKey, fmt.Sprintf("there are %d %ss already, and may be %d", r.others, kind, number))
	case most > 0 && size > most && before <= most:
		return overLimit(side, sizeKey, fmt.Sprintf("it has %d bytes, and one %s may have %d", size, kind, most))
	case r.bounds.TotalBytes > 0 && size > before && r.bytes+int64(size) > r.bounds.TotalBytes && (isNew || size > smallBytes):
		return overLimit(side, "totalBytes", fmt.Sprintf("with its %d bytes all objects would have %d, and may have %d", size, r.bytes+int64(size), r.bounds.TotalBytes))
	}
	return nil
}

// overLimit names the setting that is in the way.
func overLimit(side stream.Side, key, message string) *stream.Refusal {
	where := "spec.limits." + key + " of the Agent"
	if side == stream.Spoke {
		where = "limits." + snake(key) + " of the agent's configuration"
	}
	return &stream.Refusal{Kind: stream.RefusalOverLimit, Message: message + "; " + where + " can be raised"}
}

// snake is a key of a configuration file in place of one of Kubernetes.
func snake(key string) string {
	var out []rune
	for _, r := range key {
		if r >= 'A' && r <= 'Z' {
			out = append(out, '_', r-'A'+'a')
			continue
		}
		out = append(out, r)
	}
	return string(out)
}

// bounded reports whether what an event writes is subject to Bounds.
func bounded(e stream.Event) bool {
	switch e.Key.Collection {
	case stream.Applications, stream.AppProjects, stream.Children, stream.Statuses:
		return e.Verb == stream.Apply
	}
	return false
}

// withoutResources returns the event without the resources of its status, which says so;
// false when there are none.
func withoutResources(e stream.Event) (stream.Event, bool) {
	if e.Key.Collection != stream.Statuses && e.Key.Collection != stream.Children || !bytes.Contains(e.Data, []byte(`"resources"`)) {
		return e, false
	}
	data, refusal := contentOf(e, "the status")
	if refusal != nil {
		return e, false
	}
	status, _ := data["status"].(map[string]any)
	if _, has := status["resources"]; !has {
		return e, false
	}
	delete(status, "resources")
	setConditions(status, append(conditions(status), map[string]any{
		"type":    shortStatusCondition,
		"message": "the status is larger than the hub takes, so it is shown without its resources; spec.limits.applicationBytes of the Agent can be raised",
	}))
	var err error
	if e.Data, err = json.Marshal(data); err != nil {
		return e, false
	}
	return e, true
}

// shortStatusCondition is on an Application whose status is shown without its resources.
const shortStatusCondition = "ArgomeshStatusWarning"

// weights are what the objects that the peer may change have on this side.
type weights struct {
	of      map[stream.ResourceKey]weight
	bytes   int64
	numbers map[stream.Kind]int // of copies
}

type weight struct {
	bytes int
	copy  bool
}

func newWeights() weights {
	return weights{of: map[stream.ResourceKey]weight{}, numbers: map[stream.Kind]int{}}
}

// set notes what an object has; nothing with zero.
func (w *weights) set(key stream.ResourceKey, now weight) {
	before := w.of[key]
	w.bytes += int64(now.bytes - before.bytes)
	if before.copy {
		w.numbers[key.Kind]--
	}
	if now.copy {
		w.numbers[key.Kind]++
	}
	if now == (weight{}) {
		delete(w.of, key)
		return
	}
	w.of[key] = now
}

// room is what is left for an object.
func (w *weights) room(key stream.ResourceKey, b Bounds) room {
	self := w.of[key]
	r := room{bounds: b, others: w.numbers[key.Kind], bytes: w.bytes - int64(self.bytes)}
	if self.copy {
		r.others--
	}
	return r
}

// weigh notes what an object has now.
func (l *loop) weigh(key stream.ResourceKey, current *object) {
	var now weight
	if current != nil && (key.Kind == stream.Application || key.Kind == stream.AppProject) {
		now.copy = l.rules.isCopy(*current)
		if now.copy || l.rules.Side == stream.Hub && l.rules.Mode == stream.Managed && key.Kind == stream.Application {
			if o, ok := l.newest(key); ok {
				now.bytes = len(o.Raw)
			}
		}
	}
	l.weights.set(key, now)
}

// reserve keeps the place of an object that a worker may be about to make.
func (l *loop) reserve(t task) {
	if t.current != nil {
		return
	}
	for _, e := range t.events {
		if bounded(e) && e.Key.Collection != stream.Statuses {
			l.weights.set(t.key, weight{bytes: len(e.Data), copy: true})
		}
	}
}

// rebound takes the bounds that Bound was last told, and what they refused before.
func (l *loop) rebound() {
	bounds := l.m.bounds.Load()
	if bounds == nil || *bounds == l.bounds {
		return
	}
	l.bounds = *bounds
	var again []stream.EntryKey
	for key, r := range l.refused {
		if r.refusal.Kind == stream.RefusalOverLimit {
			again = append(again, key)
		}
	}
	slices.SortFunc(again, func(a, b stream.EntryKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range again {
		l.step(link.Retry{Key: key})
	}
}
