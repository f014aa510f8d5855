//go:build linux

package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/localconfig"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestDemo is a newcomer: it interrupts the demo while it starts, starts it again, does
// what it proposes, and stops it from another terminal.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	started := harnesstest.Turn(t)

	early := d.start("interrupted")
	d.shows(early, "an API server that starts", func() error {
		servers, err := filepath.Glob(filepath.Join(d.folder, "pids", "*-kube-apiserver.json"))
		if err == nil && len(servers) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	if err := early.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	d.ends(early)
	d.leavesNothing()

	up := d.start("demo", "-timeout", env.StartTimeout.String())
	d.prints(up, "Kubernetes API of hub", "Kubernetes API of edge-1", "Kubernetes API of edge-2")
	started()
	d.prints(up, "stops it.")
	summary := d.summary(d.log(up))
	for _, resource := range []string{" Deployment ", " ReplicaSet ", " Pod ", " Healthy "} {
		if shown, _, _ := strings.Cut(summary, "PROCESS"); !strings.Contains(shown, resource) {
			t.Errorf("the demo shows no %s first:\n%s", resource, shown)
		}
	}
	t.Log(strings.TrimSpace(summary[strings.LastIndex(summary, "First synced"):]))

	get := exec.CommandContext(t.Context(), "sh", "-c", d.where(summary, "logged in already")+" app get guestbook --output json")
	shown, err := get.Output()
	if err != nil {
		t.Fatalf("%s: %v", get, err)
	}
	if err := harness.SyncedAndHealthy(string(shown)); err != nil {
		t.Error(err)
	}
	if err := d.h.CheckLoopback(); err != nil {
		t.Error(err)
	}
	const most = 4 << 30
	memory, err := up.FamilyMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d processes use %d MiB", len(d.processes()), memory>>20)
	if memory == 0 || memory > most {
		t.Errorf("the demo uses %d bytes of memory, more than %d", memory, most)
	}
	d.showsBoth(summary)
	d.followProposals(summary)
	d.restarts(up, summary)
	d.apart()

	again := d.start("again")
	d.ends(again)
	if want, got := "the demo already runs\n\n"+summary, d.log(again); got != want {
		t.Errorf("a second start says:\n%s\nwant:\n%s", got, want)
	}
	if up.PID() == 0 {
		t.Errorf("the demo ended when it was started again: %v", up.ExitError())
	}

	d.ends(d.start("stop", "down"))
	d.ends(up)
	d.leavesNothing()
	stopAgain := d.start("stop-again", "down")
	d.ends(stopAgain)
	if got := d.log(stopAgain); got != "the demo does not run\n" {
		t.Errorf("down without a demo says %q", got)
	}
}

// demo is the program of make demo, with a work folder of its own.
type demo struct {
	t                  *testing.T
	h                  *harness.Harness
	program, temporary string
	folder             string // the work folder, in temporary, while the demo runs
}

func newDemo(t *testing.T) *demo {
	t.Helper()
	harnesstest.SkipMissing(t, "argocd", "envoy", "etcd", "git", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "redis-server")
	h := harnesstest.New(t)
	d := &demo{t: t, h: h, program: h.Path("demo"), temporary: h.Path("tmp")}
	if err := os.Mkdir(d.temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	checkout := sha256.Sum256([]byte(h.Tools().Checkout()))
	d.folder = filepath.Join(d.temporary, fmt.Sprintf("argomesh-demo-%d-%x", os.Getuid(), checkout[:3]))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", d.program, "./test/demo")
	build.Dir = h.Tools().Checkout()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	return d
}

// start runs the program as a person does.
func (d *demo) start(name string, args ...string) *harness.Process {
	d.t.Helper()
	return d.run(harness.Command{
		Name: name, Path: d.program, Args: args, Dir: d.h.Tools().Checkout(),
		Env: []string{"TMPDIR=" + d.temporary, "HOME=" + os.Getenv("HOME"), "XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME")},
	})
}

func (d *demo) run(cmd harness.Command) *harness.Process {
	d.t.Helper()
	p, err := d.h.Start(d.t.Context(), cmd)
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

// shows waits for something that a process brings about before it ends.
func (d *demo) shows(p *harness.Process, what string, check func() error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), env.StartTimeout) // as the demo may take
	defer cancel()
	if err := harness.Eventually(ctx, p.Name()+": "+what, func() error {
		ended := p.PID() == 0
		err := check()
		if ended && err != nil {
			err = harness.Permanent(fmt.Errorf("it ended: %w; the end of what it printed:\n%s", err, p.LogTail(50)))
		}
		return err
	}); err != nil {
		d.t.Fatal(err)
	}
}

// prints waits until a process has printed all of that.
func (d *demo) prints(p *harness.Process, want ...string) {
	d.t.Helper()
	d.shows(p, fmt.Sprintf("prints %q", want), func() error {
		for _, text := range want {
			if got := d.log(p); !strings.Contains(got, text) {
				return fmt.Errorf("it has not printed %q:\n%s", text, got)
			}
		}
		return nil
	})
}

// ends waits for the end of a process, which must be with exit code 0.
func (d *demo) ends(p *harness.Process) {
	d.t.Helper()
	env.Eventually(d.t, p.Name()+" ends", func() error {
		if p.PID() != 0 {
			return errors.New(p.LogTail(10))
		}
		return nil
	})
	if err := p.ExitError(); err != nil {
		d.t.Fatalf("%s: %v\n%s", p.Name(), err, p.LogTail(50))
	}
}

// log is what a process has printed.
func (d *demo) log(p *harness.Process) string {
	d.t.Helper()
	content, err := os.ReadFile(p.LogFile())
	if err != nil {
		d.t.Fatal(err)
	}
	return string(content)
}

// summary is what the demo says of itself among what it printed.
func (d *demo) summary(printed string) string {
	d.t.Helper()
	_, after, _ := strings.Cut(printed, "\n\n")
	summary, _, whole := strings.Cut(after, "\nCtrl-C")
	if !whole || !strings.Contains(summary, "First synced Application after") {
		d.t.Fatalf("the demo prints no summary:\n%s", printed)
	}
	return summary
}

// where returns what a summary says of something.
func (d *demo) where(summary, what string) string {
	d.t.Helper()
	for line := range strings.Lines(summary) {
		if place, ok := strings.CutPrefix(strings.TrimSpace(line), what+"  "); ok {
			return strings.TrimSpace(place)
		}
	}
	d.t.Fatalf("the summary does not say where this is: %s\n%s", what, summary)
	return ""
}

// followProposals does what a summary proposes to try next, and takes back what it may.
func (d *demo) followProposals(summary string) {
	d.t.Helper()
	_, proposals, _ := strings.Cut(summary, "Try next:\n")
	proposals, _, _ = strings.Cut(proposals, "\n\n")
	var commands []string
	for line := range strings.Lines(proposals) {
		if undo, ok := strings.CutPrefix(line, "  #   and back: "); ok {
			commands = append(commands, strings.TrimSpace(undo))
		} else if command, ok := strings.CutPrefix(line, "  "); ok && !strings.HasPrefix(command, "#") {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	shows := []string{
		"edge-2", "Succeeded", "listens on port 80", "deployment.apps/guestbook", "guestbook-", "hello from a pod", `"exec"`,
		"suspended", "resumed", "has 3 replicas", "takes the third replica away", "nothing passes", "all passes", "frozen", "it goes on",
		"killed", "are gone from the hub", "nothing is held",
	}
	if len(commands) != len(shows) {
		d.t.Fatalf("the demo proposes %q, and there are %d texts that they show", commands, len(shows))
	}
	for i, command := range commands {
		p := d.run(harness.Command{Name: fmt.Sprint("proposal-", i), Path: "/bin/sh", Args: []string{"-c", command}})
		d.prints(p, shows[i])
		if !strings.HasSuffix(command, " --watch") {
			d.ends(p)
		} else if err := p.Stop(d.t.Context()); err != nil {
			d.t.Error(err)
		}
	}
	env.Eventually(d.t, "the clusters of both agents are connected again, and the third says why it is refused", func() error {
		out, err := exec.CommandContext(d.t.Context(), "sh", "-c", d.where(summary, "logged in already")+" cluster list --output wide").Output()
		for _, want := range []string{`edge-1 .*Successful`, `edge-2 .*Successful`, `edge-3 .*refused since .*registered as managed`} {
			if !regexp.MustCompile(want).Match(out) {
				return errors.Join(fmt.Errorf("no %s in\n%s", want, out), err)
			}
		}
		return nil
	})
}

// showsBoth has Argo CD of the hub show what it promises of the Applications of both agents.
func (d *demo) showsBoth(summary string) {
	d.t.Helper()
	argocd := d.where(summary, "logged in already")
	for _, app := range []string{"guestbook", env.Autonomous + "/guestbook"} {
		for command, shows := range map[string]string{
			"get " + app + " --output tree":              `Pod/guestbook-\S+ +Healthy`,
			"resources " + app + " --output tree":        `ReplicaSet`,
			"diff " + app:                                `^$`, // and exit code 0: there is none
			"logs " + app + " --kind Deployment":         `listens on port 80`,
			"manifests " + app + " --source live":        `kind: Deployment`,
			"actions list " + app + " --kind Deployment": `restart`,
		} {
			out, err := exec.CommandContext(d.t.Context(), "sh", "-c", argocd+" app "+command+" 2>/dev/null").Output()
			if err != nil || !regexp.MustCompile(shows).Match(bytes.TrimSpace(out)) {
				d.t.Errorf("argocd app %s: %v\n%s", command, err, out)
			}
		}
		d.terminal(summary, app)
	}
}

// terminal works in a pod of an Application as the UI does.
func (d *demo) terminal(summary, app string) {
	d.t.Helper()
	output := func(command string) []byte {
		out, err := exec.CommandContext(d.t.Context(), "sh", "-c", command).Output()
		if err != nil {
			d.t.Fatalf("%s: %v", command, err)
		}
		return out
	}
	argocd := d.where(summary, "logged in already")
	var shown v1alpha1.Application
	if err := json.Unmarshal(output(argocd+" app get "+app+" --output json"), &shown); err != nil {
		d.t.Fatal(err)
	}
	pod := regexp.MustCompile(`Pod/(guestbook-\S+)`).FindSubmatch(output(argocd + " app get " + app + " --output tree 2>/dev/null"))
	_, file, _ := strings.Cut(argocd, "--config ")
	config, err := localconfig.ReadLocalConfig(file)
	if err != nil || config == nil || len(config.Users) != 1 || len(config.Servers) != 1 || pod == nil {
		d.t.Fatalf("the pods of %s, %v, or the settings in %s, %v", app, pod, file, err)
	}
	env.TypeInto(d.t, config.Servers[0].Server, config.Users[0].AuthToken, url.Values{
		"pod": {string(pod[1])}, "container": {"guestbook"}, "appName": {shown.Name}, "appNamespace": {shown.Namespace},
		"projectName": {shown.Spec.Project}, "namespace": {shown.Spec.Destination.Namespace}, "shell": {"sh"},
	})
}

// restarts kills an agent whose settings were edited, and waits until it is back with them.
func (d *demo) restarts(up *harness.Process, summary string) {
	d.t.Helper()
	var pid int
	for line := range strings.Lines(summary) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "agent-"+env.Managed {
			pid, _ = strconv.Atoi(fields[1])
		}
	}
	_, rest, _ := strings.Cut(summary, "agent "+env.Managed+"  ")
	file := d.where(rest, "its settings")
	content, err := os.ReadFile(file)
	if err != nil || pid == 0 {
		d.t.Fatalf("pid %d of agent %s, its settings: %v", pid, env.Managed, err)
	}
	if err := errors.Join(os.WriteFile(file, append(content, "log: {level: debug}\n"...), 0o600), syscall.Kill(pid, syscall.SIGKILL)); err != nil {
		d.t.Fatal(err)
	}
	d.prints(up, "agent-"+env.Managed+" is back")
	d.shows(up, "debug lines of agent "+env.Managed, func() error {
		log, err := os.ReadFile(filepath.Join(d.folder, "logs", "agent-"+env.Managed+".log"))
		if err == nil && !bytes.Contains(log, []byte(`"level":"debug"`)) {
			err = errors.New("there are none")
		}
		return err
	})
}

// apart asks for the folders that demos of two checkouts would have.
func (d *demo) apart() {
	d.t.Helper()
	folders := map[string]bool{}
	for range 2 {
		help := exec.CommandContext(d.t.Context(), d.program, "-h")
		help.Dir = d.t.TempDir()
		out, err := help.CombinedOutput()
		folder := regexp.MustCompile(`argomesh-demo-\d+-[0-9a-f]+`).FindString(string(out))
		if err != nil || folder == "" || folders[folder] {
			d.t.Errorf("the demo of another checkout has folder %q, beside %v: %v\n%s", folder, folders, err, out)
		}
		folders[folder] = true
	}
}

// leavesNothing waits until nothing of the demo is left.
func (d *demo) leavesNothing() {
	d.t.Helper()
	env.Eventually(d.t, "no process of the demo is left", func() error {
		if left := d.processes(); len(left) > 0 {
			return fmt.Errorf("there are %q", left)
		}
		return nil
	})
	entries, err := os.ReadDir(d.temporary)
	if err != nil {
		d.t.Fatal(err)
	}
	if len(entries) > 0 {
		d.t.Errorf("the demo leaves %v in %s", entries, d.temporary)
	}
}

// processes are those of the demo's servers and what these started, no matter who their parent
// is by now: the environment of each names the work folder, and most run in it, such as
// Redis, which writes over its environment.
func (d *demo) processes() []string {
	d.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		d.t.Fatal(err)
	}
	var found []string
	for _, process := range all {
		// What cannot be read has ended or is another user's.
		environment, _ := os.ReadFile(filepath.Join(process, "environ"))
		place, _ := os.Readlink(filepath.Join(process, "cwd"))
		if !bytes.Contains(environment, []byte(d.folder+"/")) && !strings.HasPrefix(place, d.folder+"/") {
			continue
		}
		line, err := os.ReadFile(filepath.Join(process, "cmdline"))
		if err == nil {
			found = append(found, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return found
}
