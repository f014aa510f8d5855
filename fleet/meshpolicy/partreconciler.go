package meshpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/internal/pause"
	"github.com/argomesh/argomesh/mesh/objects"
)

const (
	// restoreFirst is the pause before an object is restored a second time that someone
	// keeps changing; the next ones are longer (package pause).
	restoreFirst = 2 * time.Second
	// maxUnconfirmed is how long an object that we created counts as present although its cache
	// shows neither it nor its deletion. After that it was deleted while its watch was broken.
	maxUnconfirmed = 10 * time.Second
)

// partReconciler looks after the objects of one part.
type partReconciler struct {
	part    Part
	manager string
	caches  []*objectCache
	writer  objects.Writer
	metrics *metrics
	log     zerolog.Logger
	written map[string]*written // by name of the object
	deleted map[types.UID]bool  // by us, while a cache still shows them
}

// written is what is remembered of an object that was written.
type written struct {
	want     string                     // what was wanted, as JSON
	reply    *unstructured.Unstructured // what the API server made of it
	replaced string                     // resourceVersion before, empty when it was made again
	at       time.Time                  // when
	// unconfirmed says that it was created and no cache has shown it, or its deletion, yet.
	unconfirmed bool
	restores    pause.Restores
}

func newPartReconciler(cfg Config, part Part, m *metrics, changed func()) *partReconciler {
	log := cfg.Log.With().Str("part", part.Name).Logger()
	k := &partReconciler{
		part: part, manager: objects.Manager(cfg.Namespace), metrics: m, log: log,
		written: map[string]*written{}, deleted: map[types.UID]bool{},
	}
	k.writer = objects.Writer{Client: cfg.Client, Manager: k.manager, Resources: map[string]schema.GroupVersionResource{}}
	for _, place := range part.Places {
		k.writer.Resources[place.Kind] = place.Resource
		k.caches = append(k.caches, newObjectCache(cfg.Client, place, changed, log))
	}
	return k
}

// pass compares the objects with what they should be and writes what is to be written.
// Known is false when they cannot be compared yet.
func (k *partReconciler) pass(ctx context.Context,
	admitted map[identity.AgentName][]spiffeid.ID) (f finding, again time.Duration, known bool) {
	have, unseen, known, err := k.have(time.Now())
	if !known && err == nil {
		return f, 0, false
	}
	if known {
		again = pause.Shorter(unseen, k.compare(ctx, admitted, have, &f))
	} else {
		f.err = fmt.Errorf("the objects of %s cannot be read, are its definitions installed? %w", k.part.Name, err)
	}
	k.metrics.passed(k.part.Name, f.err)
	return f, again, true
}

// compare is a pass when it is known what is there.
func (k *partReconciler) compare(ctx context.Context, admitted map[identity.AgentName][]spiffeid.ID,
	have []*unstructured.Unstructured, f *finding) (again time.Duration) {
	want, refused, err := render(k.part, admitted)
	f.refused = refused
	if err != nil {
		f.err = fmt.Errorf("the objects of %s stay as they are: %w", k.part.Name, err)
		return 0
	}
	if k.part.Apply {
		have, again, f.err = k.apply(ctx, want, have)
	}
	f.differences = k.differences(want, have)
	k.metrics.differences.WithLabelValues(k.part.Name).Set(float64(len(f.differences)))
	return again
}

// have returns all that is there, as far as it is known. With an error it is not.
// For a moment the caches show what was before our own writes; then the writes count,
// and again is how soon to look whether they still should; zero when none does.
func (k *partReconciler) have(now time.Time) (all []*unstructured.Unstructured, again time.Duration, known bool,
	err error) {
	known = true
	shown, uids := map[string]bool{}, map[types.UID]bool{}
	for _, s := range k.caches {
		some, listed, problem := s.list()
		if !listed {
			known = false
			err = errors.Join(err, problem)
		}
		for _, o := range some {
			uids[o.GetUID()] = true
			if k.deleted[o.GetUID()] {
				continue
			}
			name := objects.Name(o)
			shown[name] = true
			if w := k.written[name]; w != nil && w.replaced == o.GetResourceVersion() {
				o = w.reply
			}
			all = append(all, o)
		}
	}
	gone := map[types.UID]bool{}
	for _, s := range k.caches {
		s.drainGone(gone)
	}
	for name, w := range k.written {
		left := maxUnconfirmed - now.Sub(w.at)
		if !w.unconfirmed || shown[name] || gone[w.reply.GetUID()] || left <= 0 {
			w.unconfirmed = false
			continue
		}
		all = append(all, w.reply)
		again = pause.Shorter(again, left)
	}
	maps.DeleteFunc(k.deleted, func(uid types.UID, _ bool) bool { return !uids[uid] })
	return all, again, known, err
}

// apply carries out what makes have what is wanted. It returns what there is then, and
// how soon to do what waits.
func (k *partReconciler) apply(ctx context.Context, want,
	have []*unstructured.Unstructured) (after []*unstructured.Unstructured, again time.Duration, err error) {
	var failures []error
	there := map[string]*unstructured.Unstructured{}
	for _, o := range have {
		there[objects.Name(o)] = o
	}
	for _, change := range objects.Plan(want, have, k.manager) {
		wait, err := k.write(ctx, change, there)
		again = pause.Shorter(again, wait)
		if err != nil {
			failures = append(failures, err)
		}
	}
	for _, o := range there {
		after = append(after, o)
	}
	return after, again, errors.Join(failures...)
}

// write carries out one change and puts the result among there.
func (k *partReconciler) write(ctx context.Context, change objects.Change,
	there map[string]*unstructured.Unstructured) (time.Duration, error) {
	now := time.Now()
	before := k.written[change.Name]
	if change.Action == diff.Keep || change.Action == diff.Refuse {
		return 0, nil
	}
	verb := change.Action.String()
	if change.Want != nil && before != nil && before.want == wantedText(change.Want) { // others changed it, or deleted it
		if change.Have != nil && unchanged(change.Have, before.reply) {
			there[change.Name] = change.Want // what differs the API server itself put in
			return 0, nil
		}
		verb = verbRestore
		if wait := before.restores.Wait(restoreFirst, now); wait > 0 {
			return wait, nil
		}
	}
	stored, err := k.writer.Write(ctx, change)
	if apierrors.IsConflict(err) {
		return gatherInterval, nil // someone was faster, and the cache will show what they did
	}
	if err != nil {
		return 0, err
	}
	k.metrics.writes.WithLabelValues(k.part.Name, verb).Inc()
	k.log.Info().Str("resource", change.Name).Str("verb", verb).Msg("mesh object written")
	if stored == nil {
		k.deleted[change.Have.GetUID()] = true
		delete(k.written, change.Name)
		delete(there, change.Name)
		return 0, nil
	}
	slim(stored)
	next := &written{want: wantedText(change.Want), reply: stored, at: now, unconfirmed: change.Have == nil}
	if change.Have != nil {
		next.replaced = change.Have.GetResourceVersion()
	}
	if before != nil {
		next.restores = before.restores
	}
	if verb == verbRestore {
		next.restores.Restored(now)
	}
	k.written[change.Name] = next
	there[change.Name] = change.Want // what differs the API server itself put in
	if next.unconfirmed {
		return maxUnconfirmed, nil
	}
	return 0, nil
}

// unchanged reports whether an object is as the API server left it when we wrote it.
func unchanged(have, reply *unstructured.Unstructured) bool {
	return equality.Semantic.DeepEqual(have.Object["spec"], reply.Object["spec"]) &&
		equality.Semantic.DeepEqual(have.GetLabels(), reply.GetLabels())
}

// wantedText is an object as text, to compare.
func wantedText(o *unstructured.Unstructured) string {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		return "" // unreachable: it was made to be sent
	}
	return string(raw)
}

// differences returns those that are left, and what is in the way of ours.
func (k *partReconciler) differences(want, have []*unstructured.Unstructured) []objects.Difference {
	out := k.part.Verify(want, have, k.manager)
	for _, change := range objects.Plan(want, have, k.manager) {
		if change.Action == diff.Refuse {
			out = append(out, objects.Difference{Text: fmt.Sprintf("%s is not written: %s.", change.Name, change.Reason)})
		}
	}
	return out
}

// render returns the objects for all agents that the mesh can keep, and why not for the
// others: one that it cannot keep does not stop the rest.
func render(part Part,
	admitted map[identity.AgentName][]spiffeid.ID) (want []*unstructured.Unstructured,
	refused map[identity.AgentName]error, err error) {
	if want, err = part.Render(admitted); err == nil {
		return want, nil, nil
	}
	refused = map[identity.AgentName]error{}
	rest := make(map[identity.AgentName][]spiffeid.ID, len(admitted))
	for name, ids := range admitted {
		if _, alone := part.Render(map[identity.AgentName][]spiffeid.ID{name: ids}); alone != nil {
			refused[name] = alone
		} else {
			rest[name] = ids
		}
	}
	if len(refused) == 0 || len(refused) == len(admitted) {
		if _, none := part.Render(nil); none != nil || len(refused) == 0 {
			return nil, nil, err // no one in particular is the reason
		}
	}
	want, err = part.Render(rest)
	return want, refused, err
}
