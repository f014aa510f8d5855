// Package statuses tells which changes of the status of an Application someone waits for, and
// which only move the time of its last reconciliation. Pure.
package statuses

import (
	"bytes"
	"maps"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// thinTime is how far apart two reconciliations of an Application are that are written
// for their time alone.
const thinTime = 10 * time.Minute

// ClassOf says how soon people and controllers wait for a change of an Application's
// status.
func ClassOf(current, next object.Object) budget.Class {
	switch {
	case operations.Completed(next.Child("status", "operationState")) && endOf(next) != endOf(current):
		return budget.First
	case len(next.Child("metadata", "annotations")) < len(current.Child("metadata", "annotations")):
		return budget.First // a refresh was answered
	case onlyReconciled(current, next):
		return budget.Last
	}
	return budget.Other
}

// endOf says when which operation of an Application ended; empty while it goes on.
func endOf(o object.Object) string {
	state := o.Child("status", "operationState")
	if !operations.Completed(state) {
		return ""
	}
	return object.StringAt(state, "startedAt") + " " + object.StringAt(state, "finishedAt")
}

// onlyReconciled reports whether next says nothing but that current was reconciled at
// another time.
func onlyReconciled(current, next object.Object) bool {
	return bytes.Equal(timeless(current), timeless(next))
}

// timeless is an Application without the times of its last reconciliation, and without
// what of it only says what was written.
func timeless(o object.Object) []byte {
	fields := WithoutTimes(o).Fields
	if rec, is := record.Of(o); is && rec.Child {
		meta := maps.Clone(o.Child("metadata"))
		annotations := maps.Clone(o.Child("metadata", "annotations"))
		delete(annotations, object.RecordKey)
		meta["annotations"], fields["metadata"] = annotations, meta
	}
	return object.Encode(fields)
}

// Thins reports whether next need not be written in place of current: it says only that
// the spoke reconciled the Application at another time, within ten minutes, and no one
// waits for that. Two do wait for the first reconciliation after an operation: see
// MayWait. That a refresh was answered is a change of more than the time. Both times are
// by the clock of the spoke.
func Thins(current, next object.Object) bool {
	was, had := reconciledTime(current)
	is, has := reconciledTime(next)
	if !had || !has || is.Sub(was).Abs() >= thinTime || !onlyReconciled(current, next) {
		return false
	}
	finished, err := time.Parse(time.RFC3339, object.StringAt(next.Child("status", "operationState"), "finishedAt"))
	return err != nil || !was.Before(finished) || is.Before(finished)
}

func reconciledTime(o object.Object) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, object.StringAt(o.Child("status"), "reconciledAt"))
	return at, err == nil
}

// StatusDelay is how long a change of a status may wait that moves timestamps
// alone, if it is told at all: of one Application that is once in thinTime.
const StatusDelay = 10 * time.Second

// StatusDigest is what was last told of an entry that carries a status. Argo CD writes
// the whole status of each Application at every reconciliation, most of the time
// to say no more than when that was.
type StatusDigest struct {
	Content stream.Hash
	// timeless is the hash of the source UID, and of the content less the timestamps of
	// reconciliation.
	timeless stream.Hash
	// reconciled says that the status is that of a reconciliation later than the
	// end of the last operation.
	reconciled bool
	// at is when that reconciliation was, in seconds; zero when it does not say.
	at int64
	// Delayed says that the entry is among the delayed ones.
	Delayed bool
}

// CarriesStatus reports whether the entries of c hold an Application's status.
func CarriesStatus(c stream.Collection) bool {
	return c == stream.Statuses || c == stream.Children
}

// MayWait reports whether no one on the hub waits for next, when it was told of
// last: it moves the time of the last reconciliation and nothing else. Two do wait
// for that time: the CLI and the notifications controller, after the end of an
// operation, for a reconciliation that is not earlier (Argo CD 3.5,
// checkAppWaitConditions), and RollingSync for one later than the operation that
// it started. The first reconciliation after an operation satisfies both, and does
// not wait. That a refresh was consumed is told beside the status, and so is not a
// change of time alone.
func MayWait(last, next StatusDigest) bool {
	return last.timeless == next.timeless && (last.reconciled || !next.reconciled)
}

// Thinned reports whether next, which may wait, need not be told at all: within so short a
// time the sink would not write it, see Thins.
func Thinned(last, next StatusDigest) bool {
	apart := time.Duration(next.at-last.at) * time.Second
	return last.at != 0 && next.at != 0 && apart.Abs() < thinTime
}

// WithoutTimes is an Application without the times of its last reconciliation.
func WithoutTimes(o object.Object) object.Object {
	status := maps.Clone(o.Child("status"))
	delete(status, "reconciledAt")
	delete(status, "observedAt") // its predecessor, which Argo CD 3 still carries along
	timeless := object.Object{Key: o.Key, Fields: maps.Clone(o.Fields)}
	timeless.Fields["status"] = status
	return timeless
}

// StatusDigestOf is that of o: content is what is sent of it, and rest what would be sent of
// WithoutTimes.
func StatusDigestOf(o object.Object, content, rest link.Content) StatusDigest {
	at := int64(0)
	if t, says := reconciledTime(o); says {
		at = t.Unix()
	}
	reconciledAt := object.StringAt(o.Child("status"), "reconciledAt")
	return StatusDigest{
		at:       at,
		Content:  content.Version.Hash,
		timeless: stream.HashOf(append(rest.Version.Hash[:], rest.Version.SourceUID...)),
		// Times are RFC 3339 in UTC, as Kubernetes writes them.
		reconciled: reconciledAt != "" && reconciledAt >= object.StringAt(o.Child("status", "operationState"), "finishedAt"),
	}
}
