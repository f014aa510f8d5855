package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/identity/inspect"
)

const (
	second = time.Second
	// mostApart is what clocks may differ: SPIRE backdates an SVID by ten seconds, and what is
	// signed for an hour is refused by who is an hour behind.
	mostApart = 10 * time.Second
)

// pods says what keeps one of ours from being ready.
func pods(f *Facts) []Finding {
	const word = "PodNotReady"
	if f.Deployment.err != nil || f.Deployment.is == nil {
		return nil // said before
	}
	about := "Deployment " + f.Side.chart()
	if f.Pods.err != nil {
		return unread(word, about, f.Pods.err)
	}
	is := rollout.Of(f.Deployment.is)
	if is.Ready {
		return well(word, about, is.Step)
	}
	var out []Finding
	for i := range f.Pods.is {
		pod := &f.Pods.is[i]
		if why := f.Mounts[pod.Name]; why != "" {
			out = append(out, found(Problem, "VolumeNotMounted", "pod "+pod.Name, why, ""))
		} else if why := rollout.Problem(pod); why != "" {
			out = append(out, found(Problem, wordOf(why), "pod "+pod.Name, why, ""))
		}
	}
	if len(out) == 0 {
		out = append(out, found(Problem, word, about, is.Step, fmt.Sprintf("look at the events of its pods: kubectl describe pods"+
			" -n %s -l app.kubernetes.io/name=%s", f.Namespace, f.Side.chart())))
	}
	return out
}

// wordOf tells the reasons of a pod apart.
func wordOf(problem string) string {
	switch {
	case strings.Contains(problem, "Image"):
		return "ImageNotPulled"
	case strings.Contains(problem, "is not scheduled"):
		return "PodNotScheduled"
	}
	return "PodNotReady"
}

// programs tells what our programs say of themselves.
func programs(f *Facts) []Finding {
	const word = "ProgramNotReady"
	var out []Finding
	for _, pod := range slices.Sorted(maps.Keys(f.Asked)) {
		about, asked := f.Side.program()+" in pod "+pod, f.Asked[pod]
		if asked.err != nil {
			out = append(out, unread(word, about, asked.err)...)
			continue
		}
		fine := true
		for _, c := range asked.is.Checks {
			if c.Ready && (c.Reason == "" || c.Reason == admin.Standby) {
				continue
			}
			fine = false
			level := Problem
			if c.Ready {
				level = Warning
			}
			says := fmt.Sprintf("says of its %s: %s", c.Name, cli.CleanText(c.Reason))
			out = append(out, found(level, word, about, says, cureOf(c.Name)))
		}
		if fine {
			out = append(out, well(word, about, "says that all is well with it")...)
		}
		if n := asked.is.Headerless; n > 0 {
			out = append(out, found(Warning, "HeaderMissing", about,
				fmt.Sprintf("has refused %.0f calls, since it started, that had no x-forwarded-client-cert", n), ""))
		}
		if n, after := asked.is.Cuts, asked.is.CutAfter; n >= fewCuts && after < shortLife {
			out = append(out, found(Warning, "ConnectionCut", about,
				fmt.Sprintf("has lost its connection to the principal %.0f times since it started, each after %.0f s on the average,"+
					" without a word of the principal", n, after), ""))
		}
	}
	return out
}

// identities tells what our programs hold of SVIDs and bundles.
func identities(f *Facts) []Finding {
	var out []Finding
	for _, pod := range slices.Sorted(maps.Keys(f.Asked)) {
		about, asked := f.Side.program()+" in pod "+pod, f.Asked[pod]
		switch {
		case asked.err != nil: // said before
		case asked.is.Identity.err != nil:
			out = append(out, found(Unknown, inspect.ReasonSVIDExpired, about,
				"does not say how its SVID and bundles are: "+cli.OneLine(asked.is.Identity.err),
				"upgrade it, if it is of an earlier release than this agentctl; its log has more"))
		default:
			for _, one := range asked.is.Identity.is.Findings {
				out = append(out, held(about, one))
			}
		}
	}
	return out
}

// held is a finding that a program says of itself.
func held(about string, one inspect.Finding) Finding {
	level, says := Problem, fmt.Sprintf("says of %s: %s", cli.CleanText(one.About), cli.CleanText(one.Says))
	switch one.Level {
	case inspect.Fine:
		return well(one.Reason, about, says)[0]
	case inspect.Warning:
		level = Warning
	case inspect.Problem:
	}
	return found(level, one.Reason, about, says, cli.CleanText(one.Cure))
}

// From so many connections on that were cut, and were younger than so many seconds on the average, something ends
// them: a network that fails now and then, or a principal that is moved, does not.
const (
	fewCuts   = 3
	shortLife = 3600
)

// cureOf says where to look when one of the checks of /readyz fails. Empty for what the word says.
func cureOf(name string) string {
	if name == "identity" {
		return "run \"agentctl identity doctor\" where the program runs: it says what the Workload API hands out, and what helps"
	}
	return ""
}

// sidecars finds pods in a mesh whose sidecar has no identity from SPIRE.
func sidecars(f *Facts) []Finding {
	const word, template = "SidecarWithoutSPIRE", "inject.istio.io/templates"
	var out []Finding
	for i := range f.Pods.is {
		pod := &f.Pods.is[i]
		isProxy := func(c corev1.Container) bool { return c.Name == "istio-proxy" }
		if !slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), isProxy) {
			continue
		}
		if strings.Contains(pod.Annotations[template], "spire") {
			out = append(out, well(word, "pod "+pod.Name, "has a sidecar with an identity from SPIRE")...)
			continue
		}
		out = append(out, found(Problem, word, "pod "+pod.Name,
			fmt.Sprintf("has a sidecar that was injected without the template spire (annotation %s), so its identity is that of"+
				" Istio's own authority", template), ""))
	}
	return out
}

func permissive(f *Facts) []Finding {
	const word = "MeshPermissive"
	if f.Network.PeerAuthentications.err != nil {
		return unread(word, "PeerAuthentications of Istio", f.Network.PeerAuthentications.err)
	}
	var out []Finding
	for _, o := range f.Network.PeerAuthentications.is {
		mtls, _ := o.Object["spec"].(map[string]any)
		mode, _ := mtls["mtls"].(map[string]any)
		about := fmt.Sprintf("PeerAuthentication %s/%s", o.GetNamespace(), o.GetName())
		switch mode["mode"] {
		case "PERMISSIVE", "DISABLE":
			out = append(out, found(Problem, word, about,
				fmt.Sprintf("has mode %v: who has no certificate is let in", mode["mode"]), ""))
		case "STRICT":
			out = append(out, well(word, about, "has mode STRICT")...)
		}
	}
	return out
}
