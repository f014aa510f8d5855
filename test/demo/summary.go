//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// summary says what runs where and what to do with it.
func (t *topology) summary() (string, error) {
	bin, err := t.linkPrograms()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	writeIndented(&b, "argocd "+strings.Join(shownBy, " ")+", on the hub:", t.shown)
	if err := t.writeProcesses(&b); err != nil {
		return "", err
	}
	if err := t.writeAccess(&b, bin); err != nil {
		return "", err
	}
	t.writeNext(&b, bin)
	b.WriteString("What is killed is started again within a second or two, an agent or the principal with its settings as they are then:\nedit the file, kill the PID above.\n\n")
	_, _ = fmt.Fprintf(&b, "First synced Application after %.1fs.\n", t.firstSync.Seconds())
	return b.String(), nil
}

// opening is the first thing to do, which is another one each time that it was done.
func (t *topology) opening() string {
	if t.signIn == nil {
		return ""
	}
	argocd := t.hub.argocd
	return fmt.Sprintf("Open Argo CD:  %s\n  signs in once; then http://%s, user admin, password %s\n\n", t.signIn.link(), argocd.ServerAddress, argocd.AdminPassword)
}

func writeIndented(b *strings.Builder, title, text string) {
	b.WriteString(title + "\n")
	for line := range strings.Lines(strings.TrimSpace(text)) {
		b.WriteString("  " + line)
	}
	b.WriteString("\n\n")
}

// writeProcesses lists what runs, where it listens and what it takes.
func (t *topology) writeProcesses(b *strings.Builder) error {
	listeners, err := t.h.Listeners()
	if err != nil {
		return err
	}
	addresses := make(map[string][]string)
	for _, l := range listeners {
		if address := l.String(); !slices.Contains(addresses[l.Process], address) { // Envoy has a socket for each worker
			addresses[l.Process] = append(addresses[l.Process], address)
		}
	}
	var total int64
	err = table(b, "PROCESS\tPID\tMEMORY\tLISTENS ON", func(w io.Writer) error {
		for _, p := range t.h.Processes() {
			memory, err := p.Memory()
			if err != nil {
				return err
			}
			total += memory
			_, _ = fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", p.Name(), p.PID(), mebibytes(memory), strings.Join(addresses[p.Name()], " "))
		}
		_, _ = fmt.Fprintf(w, "all\t\t%s\n", mebibytes(total))
		return nil
	})
	b.WriteString("\n")
	return err
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// writeAccess lists what a person connects to.
func (t *topology) writeAccess(b *strings.Builder, bin string) error {
	argocd := t.hub.argocd
	err := table(b, "WHAT\tWHERE", func(w io.Writer) error {
		row := func(what, where string) { _, _ = fmt.Fprintf(w, "%s\t%s\n", what, where) }
		for _, s := range []*site{&t.hub, t.spokes[managed], t.spokes[autonomous]} {
			row("kubeconfig of "+s.name, s.controlPlane.Kubeconfig)
		}
		for _, agent := range []string{managed, autonomous} {
			row("  "+agent+" through the hub", t.throughHub(agent))
		}
		without := "; its API alone, without the web interface: the URL that argocd prints opens nothing"
		if t.ui {
			without = ""
		}
		row("Argo CD of the hub", fmt.Sprintf("%s  user admin, password %s%s", argocd.ServerAddress, argocd.AdminPassword, without))
		row("  logged in already", fmt.Sprintf("%s/argocd --config %s", bin, argocd.CLIConfig()))
		row("principal", fmt.Sprintf("%s for agents, http://%s/metrics", t.door.Address, t.door.AdminAddress))
		row("Envoy for live access", fmt.Sprintf("%s, http://%s/stats/prometheus, audit in %s", t.door.URL, t.door.Envoy.StatsAddress, t.door.AuditFile))
		for _, agent := range []string{managed, autonomous, refused} {
			row("agent "+agent, fmt.Sprintf("http://%s/metrics", t.agents[agent].AdminAddress))
			row("  its settings", t.agents[agent].ConfigFile)
		}
		row("git repository", t.repository.Dir)
		row("logs", t.h.Path("logs"))
		return nil
	})
	b.WriteString("\n")
	return err
}

// writeNext names a few things to do.
func (t *topology) writeNext(b *strings.Builder, bin string) {
	kubectl := func(kubeconfig string) string { return fmt.Sprintf("%s/kubectl --kubeconfig %s", bin, kubeconfig) }
	b.WriteString("Try next:\n")
	agentctl := fmt.Sprintf("%s/agentctl --kubeconfig %s", bin, t.hub.controlPlane.Kubeconfig)
	argocd := fmt.Sprintf("%s/argocd --config %s", bin, t.hub.argocd.CLIConfig())
	for _, step := range []struct{ why, command, undo string }{
		{"the agents and how they are: why " + refused + " is refused, and what to do about it, says agent get " + refused, agentctl + " agent list", ""},
		{"a sync asked for on the hub, done on " + managed, argocd + " app sync " + application, ""},
		{"the log of a pod on " + managed + ", by Argo CD of the hub", argocd + " app logs " + application + " --kind Deployment", ""},
		{
			"what runs on " + managed,
			kubectl(t.spokes[managed].controlPlane.Kubeconfig) + " --namespace " + application + " get deployments,pods,services,configmaps", "",
		},
		{
			"the same through the hub, over Envoy, the principal and the connection that the agent opened",
			kubectl(t.throughHub(managed)) + " --namespace " + application + " get pods --watch", "",
		},
		{
			"a command in a pod on " + autonomous + ", through the hub; kwok plays the pods, so it runs on this machine",
			kubectl(t.throughHub(autonomous)) + " --namespace " + application + " exec deployment/guestbook -- echo hello from a pod", "",
		},
		{"what the audit has of that command, and of each terminal", `grep '"subresource":"exec"' ` + t.door.AuditFile + " | tail -n 2", ""},
		{
			autonomous + " is revoked: its streams end within a second, and Settings > Clusters says so",
			agentctl + " agent suspend " + autonomous, agentctl + " agent resume " + autonomous,
		},
	} {
		writeStep(b, step.why, step.command, step.undo)
	}
	for _, trial := range t.trials() {
		command, undo := bin+"/try "+trial.name, ""
		if trial.undo != nil {
			undo = command + " undo"
		}
		writeStep(b, trial.why, command, undo)
	}
	b.WriteString("\n")
}

func writeStep(b *strings.Builder, why, command, undo string) {
	_, _ = fmt.Fprintf(b, "  # %s\n  %s\n", why, command)
	if undo != "" {
		_, _ = fmt.Fprintf(b, "  #   and back: %s\n", undo)
	}
}

// table writes aligned columns. Writing to memory does not fail.
func table(b *strings.Builder, heading string, rows func(io.Writer) error) error {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, heading)
	if err := rows(w); err != nil {
		return err
	}
	return w.Flush()
}
