package stream

import (
	"fmt"
	"regexp"
	"time"

	"github.com/argomesh/argomesh/stream/streampb"
)

var eventReasonForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,127}$`)

// ValidEventReason reports whether s can be the reason of an event: letters and digits,
// a capital first, at most 128 of them.
func ValidEventReason(s string) bool { return eventReasonForm.MatchString(s) }

// EventMessage makes s what EventText.Message may be.
func EventMessage(s string) string { return clip(s) }

func applicationEventsOf(m ApplicationEvents) *streampb.ApplicationEvents {
	pb := &streampb.ApplicationEvents{}
	for _, e := range m.Events {
		pb.Events = append(pb.Events, &streampb.ApplicationEvent{
			Namespace: e.Namespace, Name: e.Name,
			Type: string(e.Type), Reason: e.Reason, Message: clip(e.Message),
			Count:           uint32(min(max(e.Count, 0), MaxEventCount)), //nolint:gosec // within bounds
			FirstSecondsAgo: secondsOf(e.First), LastSecondsAgo: secondsOf(e.Last),
		})
	}
	return pb
}

func secondsOf(age time.Duration) uint32 {
	return uint32(min(max(age, 0), MaxEventAge) / time.Second) //nolint:gosec // an hour at most
}

func parseApplicationEvents(pb *streampb.ApplicationEvents) (Message, error) {
	if n := len(pb.GetEvents()); n > MaxApplicationEvents {
		return nil, fmt.Errorf("%d events of Applications: %w", n, ViolationLimit.Err())
	}
	m := ApplicationEvents{Events: make([]ApplicationEvent, 0, len(pb.GetEvents()))}
	for _, e := range pb.GetEvents() {
		if err := checkName(e.GetNamespace(), e.GetName()); err != nil {
			return nil, err
		}
		parsed := ApplicationEvent{
			Namespace: e.GetNamespace(), Name: e.GetName(),
			EventText: EventText{Type: EventType(e.GetType()), Reason: e.GetReason(), Message: clip(e.GetMessage())},
			Count:     int(e.GetCount()), Last: ageOf(e.GetLastSecondsAgo()),
		}
		parsed.First = max(ageOf(e.GetFirstSecondsAgo()), parsed.Last)
		switch {
		case parsed.Type != EventNormal && parsed.Type != EventWarning:
			return nil, fmt.Errorf("event of type %.64q: %w", e.GetType(), ViolationMalformed.Err())
		case !ValidEventReason(parsed.Reason):
			return nil, fmt.Errorf("event with reason %.64q: %w", e.GetReason(), ViolationMalformed.Err())
		case parsed.Count < 1 || parsed.Count > MaxEventCount:
			return nil, fmt.Errorf("event that was said %d times: %w", e.GetCount(), ViolationMalformed.Err())
		}
		m.Events = append(m.Events, parsed)
	}
	return m, nil
}

func ageOf(seconds uint32) time.Duration {
	return min(time.Duration(seconds)*time.Second, MaxEventAge)
}
