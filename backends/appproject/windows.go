package appproject

import (
	"slices"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/object"
)

// windowsFor are the sync windows of a project as they hold on the other side. Argo CD
// matches a window by the destination of an Application, and there the agent's cluster
// has other names: a window that names it, as ours tells of one entry of its clusters,
// names what is in here instead; one that names other clusters alone holds for none of
// the agent's Applications by its clusters.
//
// An exclamation mark has no meaning in a window (Argo CD, SyncWindows.Matches).
func windowsFor(windows []any, ours func(cluster string) bool, here []string) []any {
	kept := keptWindows{at: map[string]int{}}
	for _, w := range windows {
		window, ok := w.(map[string]any)
		if !ok {
			continue // no schema lets it be
		}
		clusters, _ := window["clusters"].([]any)
		switch {
		case len(clusters) == 0:
		case slices.ContainsFunc(clusters, func(c any) bool {
			name, ok := c.(string)
			return ok && ours(name)
		}):
			window["clusters"] = object.AnyList(here)
		case window["andOperator"] == true || appspec.IsZero(window["applications"]) && appspec.IsZero(window["namespaces"]):
			continue // it matches nothing there
		default:
			delete(window, "clusters")
		}
		kept.add(window)
	}
	return kept.windows
}

// keptWindows are windows of which no two say the same but for what they let pass. Argo CD takes no project
// in which two do (SyncWindow.HashIdentity): they become one, which lets pass what both do.
type keptWindows struct {
	windows []any
	at      map[string]int // by identity
}

func (k *keptWindows) add(added map[string]any) {
	identity := string(object.Encode(windowIdentity(added)))
	at, is := k.at[identity]
	if !is {
		at = len(k.windows)
		k.at[identity], k.windows = at, append(k.windows, added)
	}
	window, _ := k.windows[at].(map[string]any)
	for _, passes := range []string{"manualSync", "syncOverrun"} {
		if is && added[passes] != true {
			delete(window, passes)
		}
	}
}

// windowIdentity is by what Argo CD tells windows apart, what is empty being the same as
// what is not there.
func windowIdentity(window map[string]any) []any {
	var identity []any
	for _, name := range []string{"kind", "schedule", "duration", "timeZone", "andOperator", "applications", "namespaces",
		"clusters"} {
		value := window[name]
		if appspec.IsZero(value) {
			value = nil
		}
		identity = append(identity, value)
	}
	return identity
}
