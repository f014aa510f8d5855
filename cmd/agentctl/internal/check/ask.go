package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
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
	return readiness(ctx, fmt.Sprintf("http://%s/readyz?format=json", ports.Address(port)))
}

// readiness reads what /readyz says, ready or not.
func readiness(ctx context.Context, url string) (out Readiness, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return out, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return out, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	err = errors.Join(err, resp.Body.Close())
	if err != nil {
		return out, err
	}
	err = json.Unmarshal(body, &out)
	return out, err
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
