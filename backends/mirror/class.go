package mirror

import (
	"bytes"
	"maps"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/stream"
)

// thinTime is how far apart two reconciliations of an Application are that are written
// for their time alone.
const thinTime = 10 * time.Minute

// class says how soon an event is to be written, which is about the object of key.
func (r Rules) class(e stream.Event, key stream.ResourceKey, current *object, asked Requests) budget.Class {
	switch {
	case e.Verb == stream.Delete || leaving(e) || e.Key.Collection == stream.Commands:
		return budget.First
	case current == nil || !carriesStatus(e.Key.Collection):
		return budget.Other
	}
	writes, _ := r.Plan(e, key, current, asked)
	if len(writes) == 0 {
		return budget.First // it is answered and costs nothing
	}
	fields, err := decode(writes[0].Raw)
	if err != nil {
		return budget.Other // what a plan writes decodes
	}
	return classOf(*current, object{key: key, fields: fields})
}

// classOf says how soon people and controllers wait for a change of an Application's
// status.
func classOf(current, next object) budget.Class {
	switch {
	case completed(next.child("status", "operationState")) && endOf(next) != endOf(current):
		return budget.First
	case len(next.child("metadata", "annotations")) < len(current.child("metadata", "annotations")):
		return budget.First // a refresh was answered
	case onlyReconciled(current, next):
		return budget.Last
	}
	return budget.Other
}

// endOf says when which operation of an Application ended; empty while it goes on.
func endOf(o object) string {
	state := o.child("status", "operationState")
	if !completed(state) {
		return ""
	}
	return stringAt(state, "startedAt") + " " + stringAt(state, "finishedAt")
}

// onlyReconciled reports whether next says nothing but that current was reconciled at
// another time.
func onlyReconciled(current, next object) bool {
	return bytes.Equal(timeless(current), timeless(next))
}

// timeless is an Application without the times of its last reconciliation, and without
// what of it only says what was written.
func timeless(o object) []byte {
	fields := maps.Clone(o.fields)
	status := maps.Clone(o.child("status"))
	delete(status, "reconciledAt")
	delete(status, "observedAt") // its predecessor, which Argo CD 3 still carries along
	fields["status"] = status
	if rec, is := recordOf(o); is && rec.Child {
		meta := maps.Clone(o.child("metadata"))
		annotations := maps.Clone(o.child("metadata", "annotations"))
		delete(annotations, recordKey)
		meta["annotations"], fields["metadata"] = annotations, meta
	}
	return encode(fields)
}

// thins reports whether next need not be written in place of current: it says only that
// the spoke reconciled the Application at another time, within ten minutes, and nobody
// waits for that. Two do wait for the first reconciliation after an operation: see
// mayWait. That a refresh was answered is a change of more than the time. Both times are
// by the clock of the spoke.
func thins(current, next object) bool {
	was, had := reconciledTime(current)
	is, has := reconciledTime(next)
	if !had || !has || is.Sub(was).Abs() >= thinTime || !onlyReconciled(current, next) {
		return false
	}
	finished, err := time.Parse(time.RFC3339, stringAt(next.child("status", "operationState"), "finishedAt"))
	return err != nil || !was.Before(finished) || is.Before(finished)
}

func reconciledTime(o object) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, stringAt(o.child("status"), "reconciledAt"))
	return at, err == nil
}
