// Package bounds limits the number and size of the objects that a peer may have on a side: Bounds
// say how much, Weights what there is, and Room what is left for one object. Pure.
package bounds

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
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

// Default are those of a peer of which no one said anything.
func Default() Bounds {
	return Bounds{Applications: 1000, AppProjects: 50, ApplicationBytes: 1 << 20, AppProjectBytes: 64 << 10,
		TotalBytes: 256 << 20}
}

// serverBytes is more than what an API server adds to an object: its UID, its times, its revision, defaults. So an
// object that is larger than it may be by more than that was so before there was a bound, or that was lower.
const serverBytes = 4 << 10

// smallBytes is the size up to which an object that is there grows beyond TotalBytes.
const smallBytes = 64 << 10

// Room is what the bounds leave for one object.
type Room struct {
	Bounds Bounds
	// others are those of its kind, and bytes is what all others have.
	others int
	bytes  int64
}

// Admits returns why the writes of a plan are not to be made; nil when they may. The
// object has before bytes now; zero when there is none.
func (r Room) Admits(side stream.Side, kind stream.Kind, writes []ownership.Write, before int) *stream.Refusal {
	for _, w := range writes {
		if w.Op != ownership.Create && w.Op != ownership.Update {
			continue
		}
		if refusal := r.admit(side, kind, before == 0, object.StoredBytes(w.Raw), before); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (r Room) admit(side stream.Side, kind stream.Kind, isNew bool, size, before int) *stream.Refusal {
	var most, number int // no limit but for all together
	var sizeKey, numberKey string
	switch kind { //nolint:exhaustive // of the others there are few
	case stream.Application:
		most, number = r.Bounds.ApplicationBytes, r.Bounds.Applications
		sizeKey, numberKey = "applicationBytes", "applications"
	case stream.AppProject:
		most, number = r.Bounds.AppProjectBytes, r.Bounds.AppProjects
		sizeKey, numberKey = "appProjectBytes", "appProjects"
	}
	reach := most
	if !isNew {
		reach += serverBytes
	}
	switch {
	case isNew && number > 0 && r.others >= number:
		return overLimit(side, numberKey, fmt.Sprintf("there are %d %ss already, and may be %d", r.others, kind, number))
	case most > 0 && size > reach && before <= reach:
		return overLimit(side, sizeKey, fmt.Sprintf("it has %d bytes, and one %s may have %d", size, kind, most))
	case r.Bounds.TotalBytes > 0 && size > before && r.bytes+int64(size) > r.Bounds.TotalBytes &&
		(isNew || size > smallBytes):
		return overLimit(side, "totalBytes",
			fmt.Sprintf("with its %d bytes all objects would have %d, and may have %d", size, r.bytes+int64(size),
				r.Bounds.TotalBytes))
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

// Applies reports whether what an event writes is subject to Bounds.
func Applies(e stream.Event) bool {
	switch e.Key.Collection {
	case stream.Applications, stream.AppProjects, stream.Children, stream.Statuses, stream.Repositories:
		return e.Verb == stream.Apply
	}
	return false
}

// Weighs reports whether objects of a kind count for Bounds: all but the two ConfigMaps of Argo CD in which some
// entries are copies.
func Weighs(kind stream.Kind) bool {
	return kind == stream.Application || kind == stream.AppProject || kind == stream.Secret
}

// WithoutResources returns the event without the resources of its status, which says so;
// false when there are none.
func WithoutResources(e stream.Event) (stream.Event, bool) {
	if e.Key.Collection != stream.Statuses && e.Key.Collection != stream.Children ||
		!bytes.Contains(e.Data, []byte(`"resources"`)) {
		return e, false
	}
	data, refusal := object.ContentOf(e, "the status")
	if refusal != nil {
		return e, false
	}
	status, _ := data["status"].(map[string]any)
	if _, has := status["resources"]; !has {
		return e, false
	}
	delete(status, "resources")
	object.SetConditions(status, append(object.Conditions(status), map[string]any{
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

// Weights are what the objects that the peer may change have on this side.
type Weights struct {
	of      map[stream.ResourceKey]Weight
	bytes   int64
	numbers map[stream.Kind]int // of copies
}

// Weight is what one object has: Bytes of JSON, and whether it is a copy, which counts for the
// number.
type Weight struct {
	Bytes int
	Copy  bool
}

// NewWeights returns the weights of no object.
func NewWeights() Weights {
	return Weights{of: map[stream.ResourceKey]Weight{}, numbers: map[stream.Kind]int{}}
}

// Set notes what an object has; nothing with zero.
func (w *Weights) Set(key stream.ResourceKey, now Weight) {
	before := w.of[key]
	w.bytes += int64(now.Bytes - before.Bytes)
	if before.Copy {
		w.numbers[key.Kind]--
	}
	if now.Copy {
		w.numbers[key.Kind]++
	}
	if now == (Weight{}) {
		delete(w.of, key)
		return
	}
	w.of[key] = now
}

// Room is what is left for an object.
func (w *Weights) Room(key stream.ResourceKey, b Bounds) Room {
	self := w.of[key]
	r := Room{Bounds: b, others: w.numbers[key.Kind], bytes: w.bytes - int64(self.Bytes)}
	if self.Copy {
		r.others--
	}
	return r
}
