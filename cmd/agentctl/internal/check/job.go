package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/rollout"
)

const (
	// jobName begins the names of the Jobs that try a path from a cluster, and is that of their container.
	jobName = "agentctl-check"
	// jobTimeout bounds a Job, with the pull of its image.
	jobTimeout = 2 * time.Minute
	// jobLeft is how long one stays whose agentctl was killed before it could remove it.
	jobLeft = 5 * time.Minute
	// jobInterval is how often its pod is read.
	jobInterval = 500 * time.Millisecond
)

// PathJob runs "agentctl check path" in a pod of a cluster, by a Job that is removed again.
type PathJob struct {
	Client    kubernetes.Interface
	Namespace string
	// Image is that of agentctl.
	Image string
	// Like is a pod whose way into the network it has: labels, DNS, nodes and variables. The zero value is one
	// of which nothing is said.
	Like corev1.PodTemplateSpec
}

// Run returns what the pod finds on its way to a principal, or that it could not be asked.
func (j PathJob) Run(ctx context.Context, to Principal) []Finding {
	out, err := j.findings(ctx, to)
	if err != nil {
		out = unread("PrincipalUnreachable", "principal "+to.Address, err)
		out[0].Side = Spoke
	}
	return out
}

// findings are those that the log of the pod has.
func (j PathJob) findings(ctx context.Context, to Principal) (out []Finding, err error) {
	jobs := j.Client.BatchV1().Jobs(j.Namespace)
	job, err := jobs.Create(ctx, j.job(to), metav1.CreateOptions{FieldManager: "agentctl"})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		now := metav1.DeletePropagationBackground
		err = errors.Join(err, jobs.Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &now}))
	}()
	pods := j.Client.CoreV1().Pods(j.Namespace)
	var pod, why string
	err = wait.PollUntilContextTimeout(ctx, jobInterval, jobTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		if err != nil {
			return false, err
		}
		why = "it has no pod: look at the events of the Job"
		for i := range list.Items {
			pod, why = list.Items[i].Name, rollout.Problem(&list.Items[i])
			if phase := list.Items[i].Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
				return true, nil
			}
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("job %s has not ended after %s: %s", job.Name, jobTimeout, why)
	}
	if err != nil {
		return nil, err
	}
	log, err := pods.GetLogs(pod, &corev1.PodLogOptions{Container: jobName}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(log, maxAnswer))
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, err
	}
	if out = findingsIn(raw); len(out) == 0 {
		return nil, fmt.Errorf("job %s found nothing, but says %.200q", job.Name, raw)
	}
	return out, nil
}

// findingsIn returns what the log of a pod that ran "agentctl check -o json" says was found; none where it
// says nothing of the kind. The lines of both of its outputs are there, in any order: those of the document
// are indented, or a brace.
func findingsIn(log []byte) []Finding {
	var document []byte
	for line := range bytes.Lines(log) {
		if bytes.ContainsAny(line[:1], " {}") {
			document = append(document, line...)
		}
	}
	var answer struct {
		Findings []Finding `json:"findings"`
	}
	if json.Unmarshal(document, &answer) != nil {
		return nil
	}
	return answer.Findings
}

// Labels of pods.
const (
	nameLabel      = "app.kubernetes.io/name"
	instanceLabel  = "app.kubernetes.io/instance"
	componentLabel = "app.kubernetes.io/component"
	managerLabel   = "app.kubernetes.io/managed-by"
)

// job is one that runs once, with no rights.
func (j PathJob) job(to Principal) *batchv1.Job {
	no, yes, once := false, true, int32(0)
	bound, left := int64(jobTimeout/time.Second), int32(jobLeft/time.Second)
	args := []string{"check", "path", to.Address, "--output", "json"}
	if to.ID != "" {
		args = append(args, "--principal-id", to.ID)
	}
	if to.Gateway {
		args = append(args, "--gateway")
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: jobName + "-", Labels: map[string]string{nameLabel: jobName, managerLabel: "agentctl"},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: &once, ActiveDeadlineSeconds: &bound, TTLSecondsAfterFinished: &left,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: j.podLabels()},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: jobName, Image: j.Image, Args: args, Env: j.env(),
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
							Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
	j.copyNetwork(&job.Spec.Template.Spec)
	return job
}

// podLabels are those of the pod that it is like, so that NetworkPolicies bind the pod of a Job as they bind that. The
// component is another one, so that neither Service nor PodDisruptionBudget selects the pod; a ReplicaSet selects its
// own by the hash of their template.
func (j PathJob) podLabels() map[string]string {
	out := maps.Clone(j.Like.Labels)
	if out == nil {
		out = map[string]string{nameLabel: jobName}
	}
	maps.Copy(out, map[string]string{
		componentLabel: jobName, managerLabel: "agentctl",
		// It needs no identity. Its own connection is what it looks at, and a sidecar would keep the Job from ending.
		"spiffe.io/spire-managed-identity": "false", "sidecar.istio.io/inject": "false",
	})
	return out
}

// copyNetwork gives a pod what says how the one that it is like resolves names, on which nodes it runs, and what
// it pulls by.
func (j PathJob) copyNetwork(pod *corev1.PodSpec) {
	like := &j.Like.Spec
	pod.DNSPolicy, pod.DNSConfig, pod.HostAliases, pod.HostNetwork = like.DNSPolicy, like.DNSConfig, like.HostAliases,
		like.HostNetwork
	pod.NodeSelector, pod.Tolerations, pod.Affinity = like.NodeSelector, like.Tolerations, like.Affinity
	pod.ImagePullSecrets = like.ImagePullSecrets
}

// env are the variables by which a program finds its proxy, of the first container of the pod that it is like.
func (j PathJob) env() (out []corev1.EnvVar) {
	if len(j.Like.Spec.Containers) == 0 {
		return nil
	}
	for _, e := range j.Like.Spec.Containers[0].Env {
		if slices.Contains([]string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"}, strings.ToUpper(e.Name)) {
			out = append(out, e)
		}
	}
	return out
}
