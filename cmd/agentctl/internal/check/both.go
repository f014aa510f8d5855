package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// RunBoth returns what is found of what hub and spoke have to agree on.
func RunBoth(hub, spoke *Facts) []Finding {
	var out []Finding
	for _, run := range []func(hub, spoke *Facts) []Finding{
		clocksApart, samePrincipal, sameAgent, accessOnBoth, defaultShared,
	} {
		out = append(out, run(hub, spoke)...)
	}
	for i := range out {
		out[i].Side = Spoke
	}
	return out
}

func clocksApart(hub, spoke *Facts) []Finding {
	const word, about = "ClocksApart", "clocks of hub and spoke"
	if hub.Clock.err != nil || spoke.Clock.err != nil {
		return nil // said before
	}
	apart := (hub.Clock.is.Sub(hub.Now) - spoke.Clock.is.Sub(spoke.Now)).Abs()
	if apart > mostApart {
		return []Finding{found(Problem, word, about, fmt.Sprintf("are %s apart", apart.Round(second)), "")}
	}
	return well(word, about, "are within "+mostApart.String())
}

// samePrincipal finds an agent that is configured for the principal of another hub. What a gateway before the
// principal is, the hub does not say.
func samePrincipal(hub, spoke *Facts) []Finding {
	wants, is := spoke.list("principal", "spiffe_ids"), hub.ownID()
	if len(wants) == 0 || is == "" || spoke.setting("principal", "gateway") != nil || slices.Contains(wants, is) {
		return nil
	}
	return []Finding{found(Problem, "OtherPrincipal", "agent "+spoke.text("name"),
		fmt.Sprintf("is configured for %s, and the principal of this hub is %s", strings.Join(wants, ", "), is),
		"name the context of its own hub by --hub-context; or have the agent be of this hub, by its name in"+
			" \"agentctl spoke install NAME --principal-id "+is+"\"")}
}

// agentOf returns the Agent of the spoke's name on the hub.
func agentOf(hub, spoke *Facts) *v1alpha1.Agent {
	name := spoke.text("name")
	for i := range hub.OfHub.Agents.is {
		if hub.OfHub.Agents.is[i].Name == name {
			return &hub.OfHub.Agents.is[i]
		}
	}
	return nil
}

// sameAgent compares how the agent is configured with how it is registered.
func sameAgent(hub, spoke *Facts) []Finding {
	if spoke.Config.is == nil || hub.OfHub.Agents.err != nil {
		return nil
	}
	name := spoke.text("name")
	agent := agentOf(hub, spoke)
	if agent == nil {
		return []Finding{found(Problem, "AgentMissing", "agent "+name, "is not registered with this hub",
			fmt.Sprintf("agentctl agent create %s, or set config.name to that of its Agent", name))}
	}
	if mode := spoke.text("mode"); mode != string(agent.Spec.Mode) {
		return []Finding{found(Problem, "RefusedMode", "agent "+name,
			fmt.Sprintf("is configured as %s, and registered as %s", mode, agent.Spec.Mode), "")}
	}
	for _, id := range spoke.ours() {
		text, _ := id.Object["spec"].(map[string]any)["spiffeIDTemplate"].(string)
		if domainOf(text) == "" || strings.Contains(text, "{{") || slices.Contains(agent.Spec.Identity.SPIFFEIDs, text) {
			continue
		}
		return []Finding{found(Problem, "OtherSPIFFEID", "agent "+name,
			fmt.Sprintf("has %s, and the Agent names %s", text, strings.Join(agent.Spec.Identity.SPIFFEIDs, ", ")),
			fmt.Sprintf("agentctl agent set %s --spiffe-id %s, or register the pods with the ID that the Agent names", name, text))}
	}
	return well("AgentMissing", "agent "+name, "is registered as it is configured")
}

func accessOnBoth(hub, spoke *Facts) []Finding {
	agent := agentOf(hub, spoke)
	if agent == nil || spoke.Config.is == nil {
		return nil
	}
	onHub := agent.Spec.Access != nil && agent.Spec.Access.Enabled
	if onSpoke := spoke.on("access", "enabled"); onHub != onSpoke {
		side := map[bool]string{true: "spoke", false: "hub"}[onHub]
		return []Finding{found(Warning, "LiveAccessOff", "agent "+agent.Name,
			"has live access on one side alone: it is off on the "+side, "")}
	}
	return nil // either side said it
}

// defaultShared finds an AppProject default that is shared on one side alone.
func defaultShared(hub, spoke *Facts) []Finding {
	const word, about = "DefaultNotShared", "AppProject default"
	agent, project := agentOf(hub, spoke), hub.OfHub.Project
	if agent == nil || agent.Spec.Mode != v1alpha1.ModeManaged {
		return nil
	}
	if project.err != nil {
		return unread(word, about, project.err)
	}
	if project.is == "" {
		return nil
	}
	sent := project.is == string(hubstate.Shared)
	taken := slices.ContainsFunc(spoke.list("policy", "adopt"), func(pattern string) bool {
		matches, err := path.Match(pattern, "appproject/default")
		return err == nil && matches
	})
	switch {
	case sent && !taken:
		return []Finding{found(Warning, word, about, "is sent by the hub, and the spoke does not take it",
			"name appproject/default in config.policy.adopt of the agent, or give Applications another project")}
	case taken && !sent:
		return []Finding{found(Warning, word, about, "would be taken by the spoke, and the hub does not send it",
			"set config.projects.share_default of the principal, or give Applications another project")}
	}
	return nil
}
