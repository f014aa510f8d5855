package mapping

import (
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// others returns the agent to which an AppProject of that name on the hub belongs although
// it begins with this agent's name; empty when it is this agent's. The longest name that
// fits has it, so that an agent's projects are its own whatever others call theirs.
func (m Map) others(project string) string {
	for _, name := range m.Longer {
		if rest, found := strings.CutPrefix(project, name.String()+"-"); found && rest != "" {
			return name.String() // of several the longest has it; that it is not ours they all say
		}
	}
	return ""
}

// NotOurs refuses an AppProject whose name on the hub is another agent's.
func (m Map) NotOurs(key stream.ResourceKey) *stream.Refusal {
	if key.Kind != stream.AppProject || !m.Prefixed() {
		return nil
	}
	owner := m.others(key.Name)
	if owner == "" {
		return nil
	}
	return &stream.Refusal{Kind: stream.RefusalNotOwned, Message: fmt.Sprintf(
		"its name on the hub, %s, is that of a project of agent %s, whose name is longer: rename the project on the spoke",
		key.Name, owner)}
}
