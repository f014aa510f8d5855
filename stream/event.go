package stream

import (
	"fmt"
	"strconv"
	"strings"

	cepb "github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
)

const (
	// Apply asks the sink to hold the content of the event.
	Apply Verb = iota + 1
	// Delete asks the sink to hold nothing under that key: the source has nothing.
	Delete
)

// The bounds of what we accept from a peer.
const (
	maxNameBytes  = 253 // RFC 1123 subdomain, the longest name of a Kubernetes object
	maxLabelBytes = 63  // RFC 1123 label, the longest namespace
	maxUIDBytes   = 128
	maxIDBytes    = 64
	maxTypeBytes  = 255
	// maxMessageBytes bounds a refusal's text.
	maxMessageBytes = 1024
	// maxPathBytes bounds one path of Result.Dropped.
	maxPathBytes = 256
)

const (
	eventTypePrefix = "io.argomesh."
	specVersion     = "1.0"
	contentType     = "application/json"
	// eventSource is relative (CloudEvents 1.0, section source): both ends know
	// from the connection who the peer is, and an event must not claim another.
	eventSource = "/argomesh"
	// heldUID is the attribute of a Delete that names what the sink held.
	heldUID = "helduid"
)

// cloudEvent writes e in the protobuf format of CloudEvents 1.0. Extension names
// are lower case letters and digits (section 3.1).
func cloudEvent(e Event) *cepb.CloudEvent {
	attributes := map[string]*cepb.CloudEventAttributeValue{
		"subject": ceString(subject(e.Key)),
	}
	if e.TraceParent != "" {
		attributes["traceparent"] = ceString(e.TraceParent)
	}
	ce := &cepb.CloudEvent{
		Id:          e.ID,
		Source:      eventSource,
		SpecVersion: specVersion,
		Type:        eventTypePrefix + e.Key.Collection.String() + "." + e.Verb.String(),
		Attributes:  attributes,
	}
	if e.Verb == Delete && e.GiveUp {
		attributes["giveup"] = &cepb.CloudEventAttributeValue{Attr: &cepb.CloudEventAttributeValue_CeBoolean{CeBoolean: true}}
	}
	switch {
	case e.Verb != Delete || e.Deleted == "":
	case e.Revision != 0:
		attributes["sourceuid"] = ceString(e.Deleted)
		attributes["revision"] = ceString(strconv.FormatUint(e.Revision, 10))
	default:
		attributes[heldUID] = ceString(e.Deleted) // older peers take no sourceuid without a revision
	}
	if e.Verb == Apply {
		attributes["datacontenttype"] = ceString(contentType)
		attributes["sourceuid"] = ceString(e.Version.SourceUID)
		attributes["contenthash"] = &cepb.CloudEventAttributeValue{
			Attr: &cepb.CloudEventAttributeValue_CeBytes{CeBytes: e.Version.Hash[:]},
		}
		// A string, since CloudEvents integers have 32 bits.
		attributes["revision"] = ceString(strconv.FormatUint(e.Revision, 10))
		ce.Data = &cepb.CloudEvent_BinaryData{BinaryData: e.Data}
	}
	return ce
}

func ceString(s string) *cepb.CloudEventAttributeValue {
	return &cepb.CloudEventAttributeValue{Attr: &cepb.CloudEventAttributeValue_CeString{CeString: s}}
}

func subject(k EntryKey) string { return k.Namespace + "/" + k.Name }

// unsupportedEvent writes what we kept of an event that we do not know.
func unsupportedEvent(u Unsupported) *cepb.CloudEvent {
	return &cepb.CloudEvent{Id: u.ID, Source: eventSource, SpecVersion: specVersion, Type: u.Type}
}

// parseCloudEvents adds the events to b. It returns an error wrapping ErrProtocol
// for what is no event.
func parseCloudEvents(b *Batch, ces []*cepb.CloudEvent) error {
	b.Events = make([]Event, 0, len(ces))
	for _, ce := range ces {
		if ce.GetSpecVersion() != specVersion {
			return fmt.Errorf("event of CloudEvents version %.8q: %w", ce.GetSpecVersion(), ViolationMalformed.Err())
		}
		if ce.GetId() == "" || len(ce.GetId()) > maxIDBytes {
			return fmt.Errorf("event id of %d bytes: %w", len(ce.GetId()), ViolationMalformed.Err())
		}
		if ce.GetType() == "" || len(ce.GetType()) > maxTypeBytes {
			return fmt.Errorf("event type of %d bytes: %w", len(ce.GetType()), ViolationMalformed.Err())
		}
		c, v := parseEventType(ce.GetType())
		if c == 0 || v == 0 {
			// Its other attributes are those of a kind that we do not know.
			b.Unsupported = append(b.Unsupported, Unsupported{ID: ce.GetId(), Type: ce.GetType()})
			continue
		}
		e, err := parseCloudEvent(ce, c, v)
		if err != nil {
			return err
		}
		b.Events = append(b.Events, e)
	}
	return nil
}

// parseEventType returns zero values for a kind or verb that we do not know.
func parseEventType(s string) (c Collection, v Verb) {
	s, found := strings.CutPrefix(s, eventTypePrefix)
	kind, verb, _ := strings.Cut(s, ".")
	if !found {
		return 0, 0
	}
	for _, known := range Collections() {
		if known.String() == kind {
			c = known
		}
	}
	for _, known := range []Verb{Apply, Delete} {
		if known.String() == verb {
			v = known
		}
	}
	return c, v
}

// parseCloudEvent returns an error wrapping ErrProtocol for what cloudEvent does
// not write. Attributes it does not know are ignored: a newer peer may add some.
func parseCloudEvent(ce *cepb.CloudEvent, c Collection, v Verb) (Event, error) {
	e := Event{ID: ce.GetId(), Key: EntryKey{Collection: c}, Verb: v}
	attributes := ce.GetAttributes()
	namespace, name, slashed := strings.Cut(attributes["subject"].GetCeString(), "/")
	if !slashed {
		return Event{}, fmt.Errorf("event without a subject: %w", ViolationMalformed.Err())
	}
	if err := checkName(namespace, name); err != nil {
		return Event{}, err
	}
	e.Key.Namespace, e.Key.Name = namespace, name
	if tp := attributes["traceparent"].GetCeString(); len(tp) <= 55 { // W3C Trace Context, section 3.2.2: version 00
		e.TraceParent = tp
	}
	if e.Verb == Delete {
		e.GiveUp = attributes["giveup"].GetCeBoolean()
		return parseDeleted(e, attributes)
	}
	version, err := parseVersion(attributes["sourceuid"].GetCeString(), attributes["contenthash"].GetCeBytes())
	if err != nil {
		return Event{}, fmt.Errorf("event: %w", err)
	}
	e.Version = version
	revision, err := strconv.ParseUint(attributes["revision"].GetCeString(), 10, 64)
	if err != nil {
		return Event{}, fmt.Errorf("event revision: %w", ViolationMalformed.Err())
	}
	e.Revision = revision
	e.Data = ce.GetBinaryData()
	if len(e.Data) == 0 {
		return Event{}, fmt.Errorf("event without data: %w", ViolationMalformed.Err())
	}
	if HashOf(e.Data) != e.Version.Hash {
		return Event{}, fmt.Errorf("event whose hash is not that of its data: %w", ViolationHash.Err())
	}
	return e, nil
}

// parseDeleted adds what a Delete says of the object that was deleted, or that the sink
// held, if it says so.
func parseDeleted(e Event, attributes map[string]*cepb.CloudEventAttributeValue) (Event, error) {
	uid, says := attributes["sourceuid"]
	if !says {
		if uid, says = attributes[heldUID]; says && !ValidUID(uid.GetCeString()) {
			return Event{}, fmt.Errorf("deletion of an object that it does not name: %w", ViolationMalformed.Err())
		}
		e.Deleted = uid.GetCeString()
		return e, nil
	}
	revision, err := strconv.ParseUint(attributes["revision"].GetCeString(), 10, 64)
	if err != nil || revision == 0 || !ValidUID(uid.GetCeString()) {
		return Event{}, fmt.Errorf("deletion of an object that it does not name: %w", ViolationMalformed.Err())
	}
	e.Deleted, e.Revision = uid.GetCeString(), revision
	return e, nil
}
