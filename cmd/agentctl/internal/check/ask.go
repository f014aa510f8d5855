package check

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/forward"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/review"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity/inspect"
)

const (
	// adminPort is that of the admin server, as the charts call it.
	adminPort = "admin"
	// askTimeout bounds the answer of one pod.
	askTimeout = 5 * time.Second
	// maxAnswer bounds what is read of it.
	maxAnswer = 1 << 20
	// maxIdentity bounds what is read of its identity, which names each trust domain of an agent.
	maxIdentity = 16 << 20
	// maxMetrics bounds what is read of its metrics, which have lines for each agent.
	maxMetrics = 64 << 20
)

// ask asks the program in a pod how it is, through the API server and the kubelet, so that no
// NetworkPolicy is in the way.
func (o *observer) ask(ctx context.Context, pod *corev1.Pod) (Readiness, error) {
	var out Readiness
	port := forward.PortOf(pod, adminPort)
	if port == 0 {
		return out, errors.New("it has no port admin")
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ports, err := forward.Open(ctx, o.config, pod.Namespace, pod.Name, port)
	if err != nil {
		return out, err
	}
	defer ports.Close()
	return readiness(ctx, "http://"+ports.Address(port), o.side)
}

// readiness reads what an admin server says of the program of a side.
func readiness(ctx context.Context, admin string, side Side) (out Readiness, err error) {
	if err := fetch(ctx, admin+"/readyz?format=json", maxAnswer, &out); err != nil {
		return out, err
	}
	out.Identity.err = fetch(ctx, admin+"/identity", maxIdentity, &out.Identity.is)
	answer, err := get(ctx, admin+"/metrics")
	if err != nil {
		return out, err
	}
	wanted := []string{headerless}
	if side == Spoke {
		wanted = []string{cuts, cutSeconds}
	}
	is, err := series(io.LimitReader(answer, maxMetrics), wanted...)
	out.Headerless, out.Cuts = is[headerless], is[cuts]
	if out.Cuts > 0 {
		out.CutAfter = is[cutSeconds] / out.Cuts
	}
	return out, errors.Join(err, answer.Close())
}

// headerless counts the calls that a principal refused since no proxy said whose they are.
const headerless = `argomesh_stream_refused_total{kind="headerless"}`

// cuts counts the connections of an agent that ended without a word of either side, and cutSeconds adds up how old
// they were.
const (
	cuts       = "argomesh_stream_cut_seconds_count"
	cutSeconds = "argomesh_stream_cut_seconds_sum"
)

// series returns the values of series, with their labels, of what /metrics says; none of one that is not there.
func series(metrics io.Reader, names ...string) (map[string]float64, error) {
	out := map[string]float64{}
	lines := bufio.NewScanner(metrics)
	for len(out) < len(names) && lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || !slices.Contains(names, lines.Text()[:at]) {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return out, err
		}
		out[lines.Text()[:at]] = value
	}
	return out, lines.Err()
}

// fetch reads what an admin server says, ready or not, of which no more than a number of bytes counts.
func fetch(ctx context.Context, url string, most int64, into any) error {
	answer, err := get(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(json.NewDecoder(io.LimitReader(answer, most)).Decode(into), answer.Close())
}

// get begins to read it.
func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	// A pod is not to lead this machine elsewhere.
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return nil, errors.Join(fmt.Errorf("it answers with %s", resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// refused returns what is not admitted, by the configuration with which the program of this side runs: on the hub
// Applications by their AppProjects, on a spoke what the hub has there by the policy.
func (o *observer) refused(ctx context.Context, f *Facts) ([]Finding, error) {
	of, level, word := review.Admission, Problem, "NoProjectAdmits"
	if f.Side == Spoke {
		of, level, word = review.Policy, Warning, "PolicyRefuses"
	}
	if f.Config.is == nil || f.Side == Hub && len(f.OfHub.Agents.is) == 0 {
		return nil, cmp.Or(f.Config.err, f.OfHub.Agents.err)
	}
	raw, err := json.Marshal(f.Config.is) // which is YAML
	if err != nil {
		return nil, err
	}
	all, err := of(ctx, o.conn, config.File{Path: "with which it runs", Content: raw})
	var out []Finding
	for _, one := range all {
		// What else is told of a configuration, or of a cluster, has checks of its own.
		kind, _, _ := strings.Cut(one.About, " ")
		if one.Level != inspect.Fine && (kind == "Application" || kind == "AppProject") {
			out = append(out, found(level, word, one.About, one.Says, one.Cure))
		}
	}
	return out, err
}
