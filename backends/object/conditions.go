package object

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Conditions returns a copy of the list of conditions in the status of an Application.
func Conditions(status map[string]any) []any {
	list, _ := status["conditions"].([]any)
	return slices.Clone(list)
}

// SetConditions puts the list of conditions into a status. An empty one leaves none.
func SetConditions(status map[string]any, list []any) {
	if len(list) == 0 {
		delete(status, "conditions")
		return
	}
	status["conditions"] = list
}

// IsCondition reports whether c is a condition of that type.
func IsCondition(c any, kind string) bool {
	m, _ := c.(map[string]any)
	return m["type"] == kind
}

// IsOwnCondition reports whether a condition is one that the hub adds.
// IsOwnCondition reports whether c is a condition that we keep at an Application.
func IsOwnCondition(c any) bool {
	return IsCondition(c, ErrorCondition) || IsCondition(c, DeletionCondition) || IsCondition(c, WarningCondition) ||
		IsCondition(c, StaleCondition)
}

// HasCondition reports whether the status of o has a condition of that type.
func HasCondition(o Object, kind string) bool {
	return slices.ContainsFunc(Conditions(o.Child("status")), func(c any) bool { return IsCondition(c, kind) })
}

// IsReturnedCondition reports whether c tells the owner that the object is theirs again.
func IsReturnedCondition(c any) bool {
	m, _ := c.(map[string]any)
	return m["type"] == ReturnedCondition
}

// ContentField is the field of an object that its source owns.
func ContentField(k stream.Kind) string {
	if k == stream.Secret || k == stream.ConfigMap {
		return "data"
	}
	return "spec"
}

// SetCondition keeps a condition of an Application, or removes it when the message is
// empty. It reports whether that changed anything.
func SetCondition(o Object, kind, message string, now time.Time) bool {
	list := Conditions(o.Child("status"))
	i := slices.IndexFunc(list, func(c any) bool { return IsCondition(c, kind) })
	switch {
	case message == "" && i < 0:
		return false
	case message == "":
		list = slices.Delete(list, i, i+1)
	case i >= 0:
		if m, _ := list[i].(map[string]any); StringAt(m, "message") == message {
			return false
		}
		list = slices.Delete(list, i, i+1)
		fallthrough
	default:
		list = append(list, map[string]any{
			"type": kind, "message": message,
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		})
	}
	SetConditions(o.Ensure("status"), list)
	return true
}

// ErrorShown is what the condition in a list says why a spoke did not take the spec.
func ErrorShown(list []any) string {
	for _, c := range list {
		if m, _ := c.(map[string]any); IsCondition(c, ErrorCondition) {
			return StringAt(m, "message")
		}
	}
	return ""
}
