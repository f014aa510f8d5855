package connectivity

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// Outcome is what became of a step.
type Outcome string

// Outcomes.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Result is what became of one step.
type Result struct {
	Step    string  `json:"step"`
	Outcome Outcome `json:"outcome"`
	// Seconds is how long it took, the way there and back.
	Seconds float64 `json:"seconds"`
	// Says is what was seen, and Cure what helps, where a step failed.
	Says string `json:"says"`
	Cure string `json:"cure,omitempty"`
}

// String is the line of a result.
func (r Result) String() string {
	line := fmt.Sprintf("%-8s %-13s %7.2f s  %s", r.Outcome, r.Step, r.Seconds, r.Says)
	if r.Cure != "" {
		line += "; " + r.Cure
	}
	return line
}

// skipError is why a step is left out.
type skipError struct{ why string }

func (e skipError) Error() string { return e.why }

// step is one thing that is tried.
type step struct {
	name string
	try  func(*tester, context.Context) (says string, err error)
	// needs is a step without which this one is skipped; empty for none.
	needs string
	cure  string
}

// Names of steps that others need.
const (
	stepToken   = "token"
	stepVersion = "version"
	stepPod     = "pod"
	stepSync    = "sync"
	stepCleanUp = "clean-up"
)

// steps are all of them, in order.
func steps() []step {
	const (
		granting = "see docs/access.md#a-kubeconfig-for-a-person"
		checking = "\"agentctl check spoke --hub-context …\" says what is wrong on either side"
		reading  = "see docs/access.md for what both sides let through"
	)
	return []step{
		{stepToken, (*tester).token, "", granting},
		{stepVersion, (*tester).version, stepToken, checking},
		{"watch", (*tester).watch, stepVersion, reading},
		{"large-object", (*tester).largeObject, stepVersion, reading},
		{stepPod, (*tester).makePod, stepVersion, "name one that is there by --pod, or another --image"},
		{"logs", (*tester).logs, stepPod, reading},
		{"exec", (*tester).exec, stepPod, reading},
		{"port-forward", (*tester).portForward, stepPod, "name a port on which the pod answers by --port"},
		{stepSync, (*tester).sync, "", "\"agentctl agent get NAME\" says what is parked, and why"},
		{"redis", (*tester).redis, stepSync, "see docs/redis.md"},
		{"revocation", (*tester).revocation, stepVersion, ""},
	}
}

func stepNames() (out []string) {
	for _, s := range steps() {
		out = append(out, s.name)
	}
	return out
}

func isStep(name string) bool { return slices.Contains(stepNames(), name) }

// tester tries one agent.
type tester struct {
	conn *cli.Connection
	name string
	id   string // part of the names of all that is made
	ask  *options
	// hub is the hub's Kubernetes API; agent the Agent as it is there.
	hub       *cli.Hub
	config    *rest.Config
	client    kubernetes.Interface
	objects   dynamic.Interface
	agent     *v1alpha1.Agent
	report    func(Result) error
	results   []Result
	leftovers []leftover
	// What steps find for others.
	doors       doors
	spoke       *rest.Config
	spokeClient kubernetes.Interface
	pod         string
	app         appRef
}

// leftover is something that was made, and how it is removed.
type leftover struct {
	what   string
	remove func(context.Context) error
}

func newTester(ctx context.Context, conn *cli.Connection, name string, ask *options) (*tester, error) {
	t := &tester{conn: conn, name: name, ask: ask, report: func(Result) error { return nil }}
	random := make([]byte, 4)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	t.id = hex.EncodeToString(random)
	var err error
	if t.config, err = conn.Config(); err != nil {
		return nil, err
	}
	if t.hub, err = conn.Hub(); err != nil {
		return nil, err
	}
	if t.client, err = kubernetes.NewForConfig(t.config); err != nil {
		return nil, err
	}
	if t.objects, err = dynamic.NewForConfig(t.config); err != nil {
		return nil, err
	}
	t.doors = doors{ask: ask, namespace: conn.Namespace, config: t.config, client: t.client}
	if t.name == "" {
		if t.name, err = firstConnected(ctx, conn); err != nil {
			return nil, err
		}
	}
	obj, err := t.hub.Agents.Get(ctx, t.name, metav1.GetOptions{})
	if err != nil {
		return nil, t.hub.Explain(err, fmt.Sprintf("test agent %q", t.name))
	}
	t.agent, err = cli.ParseAgent(obj)
	return t, err
}

// firstConnected is the name of the first agent that is connected.
func firstConnected(ctx context.Context, conn *cli.Connection) (string, error) {
	all, err := cli.ListAgents(ctx, conn, conn.Namespace)
	if err != nil {
		return "", err
	}
	var names []string
	for _, a := range all {
		if a.Status.Connected {
			names = append(names, a.Name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("none of %d agents is connected: \"agentctl status\" says why", len(all))
	}
	return slices.Min(names), nil
}

// objectName is the name of what this run makes.
func (t *tester) objectName() string { return "argomesh-connectivity-" + t.id }

// labels are those of what this run makes.
func (t *tester) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/part-of": "argomesh", "argomesh.io/connectivity-test": t.id}
}

// run tries all steps and cleans up, also when a person gives up. The error is one of writing.
func (t *tester) run(ctx context.Context) error {
	outcome := map[string]Outcome{}
	for _, s := range steps() {
		r := t.attempt(ctx, s, outcome)
		outcome[s.name] = r.Outcome
		if err := t.add(r); err != nil {
			return errors.Join(err, t.cleanUp(ctx))
		}
	}
	return t.cleanUp(ctx)
}

// attempt tries one step.
func (t *tester) attempt(ctx context.Context, s step, before map[string]Outcome) Result {
	r := Result{Step: s.name, Outcome: Skipped}
	switch {
	case ctx.Err() != nil:
		r.Says = "interrupted"
		return r
	case slices.Contains(t.ask.skip, s.name):
		r.Says = "left out by --skip"
		return r
	case s.needs != "" && before[s.needs] != OK:
		r.Says = "needs step " + s.needs
		return r
	}
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, t.ask.timeout)
	says, err := s.try(t, limited)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not within %v: %w", t.ask.timeout, err)
	}
	cancel()
	r.Seconds = time.Since(begin).Seconds()
	var skip skipError
	switch {
	case err == nil:
		r.Outcome, r.Says = OK, cli.CleanText(says) // some of it the spoke has said
	case errors.As(err, &skip):
		r.Says = cli.CleanText(skip.why)
	case refusedByRule(err):
		r.Says = cli.OneLine(err)
	default:
		r.Outcome, r.Says, r.Cure = Failed, cli.OneLine(err), s.cure
	}
	return r
}

func (t *tester) add(r Result) error {
	t.results = append(t.results, r)
	return t.report(r)
}

// refusedByRule reports whether hub or spoke say that they do not allow a call, as a person has
// set it: that is no failure.
func refusedByRule(err error) bool {
	return strings.Contains(err.Error(), "refused by the hub, rule") ||
		strings.Contains(err.Error(), "refused by the spoke, rule")
}

// unlessForbidden skips a step for which a person has no right on the hub.
func unlessForbidden(err error, doing string) error {
	if apierrors.IsForbidden(err) {
		return skipError{fmt.Sprintf("you may not %s: %s", doing, cli.OneLine(err))}
	}
	return err
}

// cleanTimeout bounds the removal of one thing.
const cleanTimeout = 30 * time.Second

// later has something removed at the end.
func (t *tester) later(what string, remove func(context.Context) error) {
	t.leftovers = append(t.leftovers, leftover{what, remove})
}

// cleanUp removes what was made, what came last first.
func (t *tester) cleanUp(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	defer t.doors.close()
	begin, left := time.Now(), []string(nil)
	for _, one := range slices.Backward(t.leftovers) {
		ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
		err := one.remove(ctx)
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			left = append(left, fmt.Sprintf("%s (%s)", one.what, cli.OneLine(err)))
		}
	}
	r := Result{Step: stepCleanUp, Outcome: OK, Seconds: time.Since(begin).Seconds()}
	r.Says = fmt.Sprintf("%d things were made and are gone", len(t.leftovers))
	if len(left) > 0 {
		r.Outcome, r.Says = Failed, "left behind: "+strings.Join(left, ", ")
		r.Cure = "delete what has the label argomesh.io/connectivity-test=" + t.id
	}
	return t.add(r)
}

// elapsed is how long something took, for people.
func elapsed(since time.Time) string {
	return cmp.Or(time.Since(since).Round(time.Millisecond), time.Millisecond).String()
}
