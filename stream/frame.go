package stream

import (
	"fmt"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream/streampb"
)

// FrameOf writes a message for the wire.
func FrameOf(m Message) *streampb.Frame {
	switch m := m.(type) {
	case Digests:
		return &streampb.Frame{Body: &streampb.Frame_Digests{Digests: &streampb.Digests{Digests: digestsOf(m.Digests)}}}
	case Heartbeat:
		return &streampb.Frame{Body: &streampb.Frame_Heartbeat{Heartbeat: &streampb.Heartbeat{
			Digests: digestsOf(m.Digests), Absences: absencesOf(m.Absences),
		}}}
	case Buckets:
		sums := make([]byte, 0, BucketCount*len(Sum{}))
		for i := range m.Sums {
			sums = append(sums, m.Sums[i][:]...)
		}
		return &streampb.Frame{Body: &streampb.Frame_Buckets{Buckets: &streampb.Buckets{
			Collection: collectionOf(m.Collection), Sums: sums,
		}}}
	case Inventory:
		entries := make([]*streampb.Entry, len(m.Entries))
		for i, e := range m.Entries {
			entries[i] = &streampb.Entry{Namespace: e.Namespace, Name: e.Name, Version: versionOf(e.Version)}
		}
		return &streampb.Frame{Body: &streampb.Frame_Inventory{Inventory: &streampb.Inventory{
			Collection: collectionOf(m.Collection), Buckets: m.Buckets[:], Entries: entries, More: m.More,
		}}}
	case Batch:
		batch := &streampb.Batch{Absences: absencesOf(m.Absences)}
		for _, e := range m.Events {
			batch.Events = append(batch.Events, cloudEvent(e))
		}
		for _, u := range m.Unsupported {
			batch.Events = append(batch.Events, unsupportedEvent(u))
		}
		return &streampb.Frame{Body: &streampb.Frame_Batch{Batch: batch}}
	case Applied:
		applied := &streampb.Applied{}
		for _, r := range m.Results {
			applied.Results = append(applied.Results, resultOf(r))
		}
		return &streampb.Frame{Body: &streampb.Frame_Applied{Applied: applied}}
	case Credential:
		return &streampb.Frame{Body: &streampb.Frame_Credential{Credential: &streampb.Credential{Token: m.Token}}}
	case Goodbye:
		return &streampb.Frame{Body: &streampb.Frame_Goodbye{Goodbye: &streampb.Goodbye{Reason: string(m.Reason)}}}
	case History:
		return &streampb.Frame{Body: &streampb.Frame_History{History: &streampb.History{
			Id: m.ID, Token: m.Token, Revision: m.Revision,
		}}}
	case SpokeInfo:
		info := &streampb.SpokeInfo{Applications: m.Applications, Apis: m.APIs, Resources: m.Resources}
		if !m.CacheSynced.IsZero() {
			info.CacheSyncedUnix = m.CacheSynced.Unix()
		}
		info.ToldUnix = max(m.SentAt.Unix(), 0) // a clock before 1970 tells nothing
		return &streampb.Frame{Body: &streampb.Frame_SpokeInfo{SpokeInfo: info}}
	case ApplicationEvents:
		return &streampb.Frame{Body: &streampb.Frame_ApplicationEvents{ApplicationEvents: applicationEventsOf(m)}}
	}
	panic(fmt.Sprintf("stream: message of type %T", m)) // the interface is sealed
}

// ParseFrame reads a message from the wire. It returns an error wrapping
// a Violation for anything FrameOf does not write; names, hashes and lengths are
// checked here and nowhere else. A frame with no body this release knows, or about
// a collection that it does not know, gives neither a message nor an error: a newer
// peer may send one.
func ParseFrame(f *streampb.Frame) (Message, error) {
	switch body := f.GetBody().(type) {
	case *streampb.Frame_Digests:
		digests, err := parseDigests(body.Digests.GetDigests())
		if err != nil {
			return nil, err
		}
		return Digests{Digests: digests}, nil
	case *streampb.Frame_Heartbeat:
		return parseHeartbeat(body.Heartbeat)
	case *streampb.Frame_Buckets:
		return parseBuckets(body.Buckets)
	case *streampb.Frame_Inventory:
		return parseInventory(body.Inventory)
	case *streampb.Frame_Batch:
		return parseBatch(body.Batch)
	case *streampb.Frame_Applied:
		return parseApplied(body.Applied)
	case *streampb.Frame_Goodbye:
		switch reason := GoodbyeReason(body.Goodbye.GetReason()); reason {
		case GoodbyeSuperseded, GoodbyeRevoked, GoodbyeProtocol:
			return Goodbye{Reason: reason}, nil
		}
		return Goodbye{Reason: GoodbyeDrain}, nil
	case *streampb.Frame_Credential:
		return parseCredential(body.Credential)
	case *streampb.Frame_History:
		return parseHistoryMessage(body.History)
	case *streampb.Frame_SpokeInfo:
		return parseSpokeInfo(body.SpokeInfo)
	case *streampb.Frame_ApplicationEvents:
		return parseApplicationEvents(body.ApplicationEvents)
	case *streampb.Frame_Hello, *streampb.Frame_Welcome:
		return nil, fmt.Errorf("handshake frame on an open connection: %w", ViolationOrder.Err())
	}
	return nil, nil //nolint:nilnil // documented: an unknown frame is neither
}

func parseHeartbeat(pb *streampb.Heartbeat) (Message, error) {
	digests, err := parseDigests(pb.GetDigests())
	if err != nil {
		return nil, err
	}
	absences, err := parseAbsences(pb.GetAbsences())
	if err != nil {
		return nil, err
	}
	return Heartbeat{Digests: digests, Absences: absences}, nil
}

func parseBatch(pb *streampb.Batch) (Message, error) {
	absences, err := parseAbsences(pb.GetAbsences())
	if err != nil {
		return nil, err
	}
	batch := Batch{Absences: absences}
	if err := parseCloudEvents(&batch, pb.GetEvents()); err != nil {
		return nil, err
	}
	return batch, nil
}

func parseApplied(pb *streampb.Applied) (Message, error) {
	applied := Applied{Results: make([]Result, 0, len(pb.GetResults()))}
	for _, result := range pb.GetResults() {
		r, known, err := parseResult(result)
		if err != nil {
			return nil, err
		}
		if known {
			applied.Results = append(applied.Results, r)
		}
	}
	return applied, nil
}

func digestsOf(ds []Digest) []*streampb.Digest {
	out := make([]*streampb.Digest, len(ds))
	for i, d := range ds {
		out[i] = &streampb.Digest{Collection: collectionOf(d.Collection), Root: d.Root[:], Entries: d.Entries}
	}
	return out
}

func parseDigests(pbs []*streampb.Digest) ([]Digest, error) {
	if len(pbs) > MaxListed {
		return nil, fmt.Errorf("%d digests: %w", len(pbs), ViolationLimit.Err())
	}
	digests := make([]Digest, 0, len(pbs))
	for _, pb := range pbs {
		if len(pb.GetRoot()) != len(Sum{}) {
			return nil, fmt.Errorf("digest of %d bytes: %w", len(pb.GetRoot()), ViolationMalformed.Err())
		}
		c, err := parseCollection(pb.GetCollection())
		if err != nil {
			return nil, err
		}
		if c == 0 {
			continue
		}
		digests = append(digests, Digest{Collection: c, Root: Sum(pb.GetRoot()), Entries: pb.GetEntries()})
	}
	return digests, nil
}

func absencesOf(as []Absence) []*streampb.Absence {
	out := make([]*streampb.Absence, len(as))
	for i, a := range as {
		out[i] = &streampb.Absence{Collection: collectionOf(a.Collection), Entries: a.Entries}
	}
	return out
}

func parseAbsences(pbs []*streampb.Absence) ([]Absence, error) {
	if len(pbs) > MaxListed {
		return nil, fmt.Errorf("%d absences: %w", len(pbs), ViolationLimit.Err())
	}
	var absences []Absence
	for _, pb := range pbs {
		c, err := parseCollection(pb.GetCollection())
		if err != nil {
			return nil, err
		}
		if c == 0 {
			continue
		}
		absences = append(absences, Absence{Collection: c, Entries: pb.GetEntries()})
	}
	return absences, nil
}

func parseSpokeInfo(pb *streampb.SpokeInfo) (Message, error) {
	if pb.GetApplications() < 0 || pb.GetApis() < 0 || pb.GetResources() < 0 || pb.GetCacheSyncedUnix() < 0 ||
		pb.GetToldUnix() < 0 {
		return nil, fmt.Errorf("spoke info with a negative number: %w", ViolationMalformed.Err())
	}
	info := SpokeInfo{Applications: pb.GetApplications(), APIs: pb.GetApis(), Resources: pb.GetResources()}
	if s := pb.GetCacheSyncedUnix(); s != 0 {
		info.CacheSynced = time.Unix(s, 0)
	}
	if s := pb.GetToldUnix(); s != 0 {
		info.SentAt = time.Unix(s, 0)
	}
	return info, nil
}

func parseBuckets(pb *streampb.Buckets) (Message, error) {
	c, err := parseCollection(pb.GetCollection())
	if err != nil || c == 0 {
		return nil, err
	}
	m := Buckets{Collection: c}
	if len(pb.GetSums()) != len(m.Sums)*len(Sum{}) {
		return nil, fmt.Errorf("bucket sums of %d bytes: %w", len(pb.GetSums()), ViolationMalformed.Err())
	}
	for i := range m.Sums {
		m.Sums[i] = Sum(pb.GetSums()[i*len(Sum{}):])
	}
	return m, nil
}

func parseInventory(pb *streampb.Inventory) (Message, error) {
	c, err := parseCollection(pb.GetCollection())
	if err != nil || c == 0 {
		return nil, err
	}
	if len(pb.GetBuckets()) != len(BucketSet{}) {
		return nil, fmt.Errorf("bucket set of %d bytes: %w", len(pb.GetBuckets()), ViolationMalformed.Err())
	}
	m := Inventory{Collection: c, Buckets: BucketSet(pb.GetBuckets()), More: pb.GetMore()}
	for _, e := range pb.GetEntries() {
		if err := checkName(e.GetNamespace(), e.GetName()); err != nil {
			return nil, err
		}
		v, err := parseVersion(e.GetVersion().GetSourceUid(), e.GetVersion().GetHash())
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, Entry{Namespace: e.GetNamespace(), Name: e.GetName(), Version: v})
	}
	return m, nil
}

func resultOf(r Result) *streampb.Result {
	pb := &streampb.Result{
		Collection: collectionOf(r.Key.Collection), Namespace: r.Key.Namespace, Name: r.Key.Name,
		Event: r.Event, Undone: clip(r.Undone),
	}
	if !r.Held.Absent() {
		pb.Held = versionOf(r.Held)
	}
	if r.Refusal != nil {
		pb.Refusal = &streampb.Refusal{
			Kind: string(r.Refusal.Kind), Message: clip(r.Refusal.Message), Awaits: clipTo(r.Refusal.Awaits, maxNameBytes),
		}
	}
	for _, path := range r.Dropped[:min(len(r.Dropped), MaxDropped)] {
		pb.Dropped = append(pb.Dropped, clipTo(path, maxPathBytes))
	}
	pb.Retry = r.Retry
	return pb
}

// parseResult returns false for a report on a collection of a newer peer.
func parseResult(pb *streampb.Result) (r Result, known bool, err error) {
	if len(pb.GetEvent()) > maxIDBytes {
		return Result{}, false, fmt.Errorf("event id of %d bytes: %w", len(pb.GetEvent()), ViolationMalformed.Err())
	}
	r.Event = pb.GetEvent()
	if pb.GetCollection() == streampb.Collection_COLLECTION_UNSPECIFIED {
		if pb.GetNamespace() != "" || pb.GetName() != "" || r.Event == "" || pb.GetHeld() != nil || pb.GetRefusal() == nil {
			return Result{}, false, fmt.Errorf("result about nothing: %w", ViolationMalformed.Err())
		}
		r.Refusal = parseRefusal(pb.GetRefusal())
		return r, true, nil
	}
	c, err := parseCollection(pb.GetCollection())
	if err != nil || c == 0 {
		return Result{}, false, err
	}
	if err := checkName(pb.GetNamespace(), pb.GetName()); err != nil {
		return Result{}, false, err
	}
	r.Key = EntryKey{Collection: c, Namespace: pb.GetNamespace(), Name: pb.GetName()}
	if pb.GetHeld() != nil {
		if r.Held, err = parseVersion(pb.GetHeld().GetSourceUid(), pb.GetHeld().GetHash()); err != nil {
			return Result{}, false, err
		}
	}
	if pb.GetRefusal() != nil {
		r.Refusal = parseRefusal(pb.GetRefusal())
	}
	r.Undone = clip(pb.GetUndone())
	r.Retry = pb.GetRetry()
	r.Dropped, err = parseDropped(pb.GetDropped())
	return r, true, err
}

// parseDropped reads the paths of a Result: names of fields that someone chose.
func parseDropped(paths []string) ([]string, error) {
	if len(paths) > MaxDropped {
		return nil, fmt.Errorf("result with %d paths: %w", len(paths), ViolationLimit.Err())
	}
	var out []string
	for _, path := range paths {
		if path = clipTo(path, maxPathBytes); path != "" {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parseRefusal(pb *streampb.Refusal) *Refusal {
	return &Refusal{Kind: ParseRefusalKind(pb.GetKind()), Message: clip(pb.GetMessage()),
		Awaits: clipTo(pb.GetAwaits(), maxNameBytes)}
}

func collectionOf(c Collection) streampb.Collection {
	switch c {
	case Applications:
		return streampb.Collection_COLLECTION_APPLICATION
	case AppProjects:
		return streampb.Collection_COLLECTION_APP_PROJECT
	case Statuses:
		return streampb.Collection_COLLECTION_STATUS
	case Commands:
		return streampb.Collection_COLLECTION_COMMAND
	case Children:
		return streampb.Collection_COLLECTION_CHILD
	case Repositories:
		return streampb.Collection_COLLECTION_REPOSITORY
	case Trust:
		return streampb.Collection_COLLECTION_TRUST
	}
	return streampb.Collection_COLLECTION_UNSPECIFIED
}

// parseCollection returns zero for a collection of a newer peer.
func parseCollection(pb streampb.Collection) (Collection, error) {
	switch pb {
	case streampb.Collection_COLLECTION_UNSPECIFIED:
		return 0, fmt.Errorf("no collection: %w", ViolationMalformed.Err())
	case streampb.Collection_COLLECTION_APPLICATION:
		return Applications, nil
	case streampb.Collection_COLLECTION_APP_PROJECT:
		return AppProjects, nil
	case streampb.Collection_COLLECTION_STATUS:
		return Statuses, nil
	case streampb.Collection_COLLECTION_COMMAND:
		return Commands, nil
	case streampb.Collection_COLLECTION_CHILD:
		return Children, nil
	case streampb.Collection_COLLECTION_REPOSITORY:
		return Repositories, nil
	case streampb.Collection_COLLECTION_TRUST:
		return Trust, nil
	}
	return 0, nil
}
