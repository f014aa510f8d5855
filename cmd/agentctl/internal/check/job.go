package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/install"
)

const (
	// jobName begins the names of the Jobs that look from a cluster, and is that of their container.
	jobName = "agentctl-check"
	// jobTimeout bounds a Job, with the pull of its image.
	jobTimeout = 2 * time.Minute
	// jobLeft is how long one stays whose agentctl was killed before it could remove it.
	jobLeft = 5 * time.Minute
	// lookEvery is how often its pod is looked at.
	lookEvery = 500 * time.Millisecond
)

// fromPod runs "agentctl check path" in a pod of a cluster, by a Job that is removed again, and returns
// what it found.
func fromPod(ctx context.Context, client kubernetes.Interface, namespace, image string, to Principal) (out []Finding,
	err error) {
	jobs := client.BatchV1().Jobs(namespace)
	job, err := jobs.Create(ctx, newJob(image, to), metav1.CreateOptions{FieldManager: "agentctl"})
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		now := metav1.DeletePropagationBackground
		err = errors.Join(err, jobs.Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &now}))
	}()
	pods := client.CoreV1().Pods(namespace)
	var pod, why string
	err = wait.PollUntilContextTimeout(ctx, lookEvery, jobTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		if err != nil {
			return false, err
		}
		why = "it has no pod: look at the events of the Job"
		for i := range list.Items {
			pod, why = list.Items[i].Name, install.ProblemOf(&list.Items[i])
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

// newJob is one that looks once, with no rights.
func newJob(image string, to Principal) *batchv1.Job {
	no, yes, once := false, true, int32(0)
	bound, left := int64(jobTimeout/time.Second), int32(jobLeft/time.Second)
	labels := map[string]string{"app.kubernetes.io/name": jobName, "app.kubernetes.io/managed-by": "agentctl",
		// Its own connection is what it looks at, and a sidecar would keep the Job from ending.
		"sidecar.istio.io/inject": "false"}
	args := []string{"check", "path", to.Address, "--output", "json"}
	if to.ID != "" {
		args = append(args, "--principal-id", to.ID)
	}
	if to.Gateway {
		args = append(args, "--gateway")
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: jobName + "-", Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: &once, ActiveDeadlineSeconds: &bound, TTLSecondsAfterFinished: &left,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: jobName, Image: image, Args: args,
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
							Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}
