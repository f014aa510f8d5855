package connectivity

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/forward"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
)

const (
	// pollInterval is how often it is looked for what takes a moment.
	pollInterval = 200 * time.Millisecond
	// largeBytes is how large the large object is: near what a Kubernetes API takes.
	largeBytes = 900 << 10
	// container is that of the pod that is made.
	container = "main"
)

// version asks the spoke for its version, which it must answer itself.
func (t *tester) version(ctx context.Context) (string, error) {
	client, err := rest.HTTPClientFor(t.spoke)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.spoke.Host+"/version", http.NoBody)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // it is read
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the answer is %s: %.300s", resp.Status, body)
	case resp.Header.Get("Warning") != "":
		return "", fmt.Errorf("the spoke does not answer itself: %s", resp.Header.Get("Warning"))
	}
	v, err := t.spokeClient.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Kubernetes %s of the spoke answers in %s", v.GitVersion, elapsed(begin)), nil
}

// configMap is one of ours on the spoke.
func (t *tester) configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels()}, Data: data}
}

// create makes a ConfigMap on the spoke, which goes at the end.
func (t *tester) create(ctx context.Context, cm *corev1.ConfigMap) error {
	maps := t.spokeClient.CoreV1().ConfigMaps(t.ask.namespace)
	if _, err := maps.Create(ctx, cm, metav1.CreateOptions{FieldManager: "agentctl"}); err != nil {
		return err
	}
	t.later("ConfigMap "+cm.Name+" on the spoke", func(ctx context.Context) error {
		return maps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
	})
	return nil
}

// watch opens a watch, changes something, and hears of it.
func (t *tester) watch(ctx context.Context) (string, error) {
	name, begin := t.objectName()+"-watch", time.Now()
	events, err := t.spokeClient.CoreV1().ConfigMaps(t.ask.namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	if err != nil {
		return "", err
	}
	defer events.Stop()
	opened, written := elapsed(begin), time.Now()
	if err := t.create(ctx, t.configMap(name, nil)); err != nil {
		if refusedByRule(err) {
			return fmt.Sprintf("open after %s; no event is awaited, since nothing may be written", opened), nil
		}
		return "", err
	}
	select {
	case event, open := <-events.ResultChan():
		if !open {
			return "", errors.New("the watch was ended before its event")
		}
		if o, is := event.Object.(*corev1.ConfigMap); !is || o.Name != name {
			return "", fmt.Errorf("the first event is %s of %T", event.Type, event.Object)
		}
	case <-ctx.Done():
		return "", fmt.Errorf("no event came: %w", ctx.Err())
	}
	return fmt.Sprintf("open after %s, an event %s after the write began", opened, elapsed(written)), nil
}

// largeObject writes one, and reads the same.
func (t *tester) largeObject(ctx context.Context) (string, error) {
	random := make([]byte, largeBytes*3/4)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	text, name := base64.StdEncoding.EncodeToString(random), t.objectName()+"-large" // which no compression makes small
	begin := time.Now()
	if err := t.create(ctx, t.configMap(name, map[string]string{"content": text})); err != nil {
		return "", err
	}
	wrote, begin := elapsed(begin), time.Now()
	got, err := t.spokeClient.CoreV1().ConfigMaps(t.ask.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if got.Data["content"] != text {
		return "", errors.New("what is read is not what was written")
	}
	return fmt.Sprintf("%d KiB written in %s, read in %s", len(text)>>10, wrote, elapsed(begin)), nil
}

// makePod makes the pod that the steps after it work in, and waits until it runs.
func (t *tester) makePod(ctx context.Context) (string, error) {
	pods := t.spokeClient.CoreV1().Pods(t.ask.namespace)
	if t.ask.pod != "" {
		pod, err := pods.Get(ctx, t.ask.pod, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		t.pod = pod.Name
		return fmt.Sprintf("pod %s/%s is there, %s", t.ask.namespace, t.pod, pod.Status.Phase), nil
	}
	no, yes, user, name := false, true, int64(65532), t.objectName()
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels()},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no, RestartPolicy: corev1.RestartPolicyNever, EnableServiceLinks: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: container, Image: t.ask.image,
				Command: []string{"sh", "-c", fmt.Sprintf("echo %s; exec httpd -f -p %d", name, t.ask.port)},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}, metav1.CreateOptions{FieldManager: "agentctl"})
	if err != nil {
		return "", err
	}
	now := int64(0)
	t.later("pod "+name+" on the spoke", func(ctx context.Context) error {
		return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	why := "it was not looked at"
	begin := time.Now()
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		why = cmp.Or(rollout.Problem(pod), "its phase is "+string(pod.Status.Phase))
		return pod.Status.Phase == corev1.PodRunning, nil
	})
	if err != nil {
		return "", fmt.Errorf("pod %s/%s does not run: %s: %w", t.ask.namespace, name, why, err)
	}
	t.pod = name
	return fmt.Sprintf("pod %s/%s runs after %s", t.ask.namespace, name, elapsed(begin)), nil
}

// logs reads what the pod has said.
func (t *tester) logs(ctx context.Context) (string, error) {
	begin, few := time.Now(), int64(10)
	var text []byte
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		pods := t.spokeClient.CoreV1().Pods(t.ask.namespace)
		text, err = pods.GetLogs(t.pod, &corev1.PodLogOptions{TailLines: &few}).DoRaw(ctx)
		return t.ask.pod != "" || len(text) > 0, err // a pod that is there may have said nothing
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bytes after %s", len(text), elapsed(begin)), nil
}

// exec runs echo in the pod.
func (t *tester) exec(ctx context.Context) (string, error) {
	req := t.spokeClient.CoreV1().RESTClient().Post().Resource("pods").Namespace(t.ask.namespace).Name(t.pod).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: []string{"echo", t.id}, Stdout: true, Stderr: true},
		scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(t.spoke, http.MethodPost, req.URL())
	if err != nil {
		return "", err
	}
	socket, err := remotecommand.NewWebSocketExecutor(t.spoke, http.MethodGet, req.URL().String())
	if err != nil {
		return "", err
	}
	either, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return "", err
	}
	var out, complaint bytes.Buffer
	begin := time.Now()
	if err := either.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &complaint}); err != nil {
		return "", fmt.Errorf("%w %s", err, complaint.String())
	}
	if !strings.Contains(out.String(), t.id) {
		return "", fmt.Errorf("echo says %q", out.String())
	}
	return "echo answers after " + elapsed(begin), nil
}

// portForward says something to a port of the pod, and hears something.
func (t *tester) portForward(ctx context.Context) (string, error) {
	begin := time.Now()
	ports, err := forward.Open(ctx, t.spoke, t.ask.namespace, t.pod, t.ask.port)
	if err != nil {
		return "", err
	}
	defer ports.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", ports.Address(t.ask.port))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // all was said
	if until, limited := ctx.Deadline(); limited {
		if err := conn.SetDeadline(until); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return "", fmt.Errorf("port %d says nothing: %w", t.ask.port, err)
	}
	return fmt.Sprintf("port %d answers after %s", t.ask.port, elapsed(begin)), nil
}

// reach makes the clients of the spoke.
func (t *tester) reach(config *rest.Config) (err error) {
	config.UserAgent = t.config.UserAgent
	config.QPS, config.Burst = t.config.QPS, t.config.Burst
	t.spoke = config
	t.spokeClient, err = kubernetes.NewForConfig(config)
	return err
}
