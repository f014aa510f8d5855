package check

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/forward"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/review"
	"github.com/argomesh/argomesh/identity/inspect"
)

const (
	// adminPort is that of the admin server, as the charts call it.
	adminPort = "admin"
	// askTimeout bounds the answer of one pod.
	askTimeout = 5 * time.Second
	// maxAnswer bounds what is read of it.
	maxAnswer = 1 << 20
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
	body, err := fetch(ctx, admin+"/readyz?format=json")
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(body, &out); err != nil || side == Spoke {
		return out, err
	}
	answer, err := get(ctx, admin+"/metrics")
	if err != nil {
		return out, err
	}
	out.Headerless, err = counter(io.LimitReader(answer, maxMetrics), headerless)
	return out, errors.Join(err, answer.Close())
}

// headerless counts the calls that a principal refused since no proxy said whose they are.
const headerless = `argomesh_stream_refused_total{kind="headerless"}`

// counter returns the value of a series, with its labels, of what /metrics says; 0 if it is not there.
func counter(metrics io.Reader, series string) (float64, error) {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), series+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, lines.Err()
}

// fetch reads what an admin server says, ready or not.
func fetch(ctx context.Context, url string) ([]byte, error) {
	answer, err := get(ctx, url)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(answer, maxAnswer))
	return body, errors.Join(err, answer.Close())
}

// get begins to read it.
func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// refused returns the Applications that their AppProjects do not admit, by the configuration with
// which the principal runs.
func (o *observer) refused(ctx context.Context, f *Facts) ([]Finding, error) {
	if f.Config.is == nil || len(f.OfHub.Agents.is) == 0 {
		return nil, f.Config.err
	}
	file, err := os.CreateTemp("", "principal-*.yaml")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	raw, err := json.Marshal(f.Config.is) // which is YAML
	if err != nil {
		return nil, err
	}
	_, err = file.Write(raw)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	all, err := review.Admission(ctx, o.conn, file.Name())
	var out []Finding
	for _, one := range all {
		if one.Level != inspect.Fine && strings.HasPrefix(one.About, "Application ") {
			out = append(out, found(Problem, "NoProjectAdmits", one.About, one.Says, one.Cure))
		}
	}
	return out, err
}
