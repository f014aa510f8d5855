package argocd

import (
	"cmp"
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// The components of Argo CD, as label app.kubernetes.io/component of its manifests, of its Helm
// chart and of its operator has them.
const (
	componentLabel      = "app.kubernetes.io/component"
	serverComponent     = "server"
	controllerComponent = "application-controller"
)

// defaultRedis is where Argo CD looks for Redis when no one says where.
const defaultRedis = "argocd-redis:6379"

// State is what there is of Argo CD in its namespace.
type State struct {
	// Server is argocd-server; nil where there is none, as on most spokes.
	Server *appsv1.Deployment
	// Namespaces are patterns of the namespaces beside its own of which argocd-server takes Applications, and
	// OwnNamespaces those that it has without our flag.
	Namespaces, OwnNamespaces string
	// Controller says that there is an application controller.
	Controller bool
	// Redis is what its programs use; nil where none of them is there, or not as a Deployment or
	// StatefulSet of this namespace.
	Redis *Redis
	// Version is the tag of the image of the controller, else of the server; empty when none has one.
	Version string
	// Terminal says that it offers terminals.
	Terminal bool
	// Unread is what may not be read, and is as if it were not there.
	Unread Unread
}

// Unread says why parts of Argo CD are not known; nil for those that are.
type Unread struct {
	// Programs are its Deployments and StatefulSets, Params the ConfigMap with their settings, and Settings that with
	// those of Argo CD itself.
	Programs, Params, Settings error
}

// Redis is how the programs of Argo CD reach their Redis.
type Redis struct {
	// Address is host:port.
	Address string
	// Secret and Key are where the password is; empty for none.
	Secret, Key string
	// Compression is "gzip" or "none".
	Compression string
	// Cannot says why agentctl cannot have the same; empty when it can.
	Cannot string
}

// Observe reads what there is of Argo CD in a namespace. What may not be read is as if it were
// not there, and Unread says so.
func Observe(ctx context.Context, client kubernetes.Interface, namespace string) (State, error) {
	var unread Unread
	opts := metav1.ListOptions{LabelSelector: componentLabel + " in (" + serverComponent + "," + controllerComponent + ")"}
	deployments, err := client.AppsV1().Deployments(namespace).List(ctx, opts)
	if err := unlessForbidden(err, &unread.Programs); err != nil {
		return State{}, err
	}
	sets, err := client.AppsV1().StatefulSets(namespace).List(ctx, opts)
	if err := unlessForbidden(err, &unread.Programs); err != nil {
		return State{}, err
	}
	params, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, paramsMap, metav1.GetOptions{})
	if err := unlessForbidden(err, &unread.Params); err != nil && !apierrors.IsNotFound(err) {
		return State{}, err
	}
	settings, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, settingsMap, metav1.GetOptions{})
	if err := unlessForbidden(err, &unread.Settings); err != nil && !apierrors.IsNotFound(err) {
		return State{}, err
	}
	s := stateOf(deployments.Items, sets.Items, params.Data)
	s.Terminal, s.Unread = settings.Data[terminalKey] == terminalOn, unread
	return s, nil
}

// unlessForbidden returns err, unless the API server refused to say: then it is kept in why.
func unlessForbidden(err error, why *error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	*why = cmp.Or(*why, err)
	return nil
}

// stateOf is Observe on what was read.
func stateOf(deployments []appsv1.Deployment, sets []appsv1.StatefulSet, params map[string]string) State {
	var s State
	var pods []corev1.PodSpec // the controller's first, since every side has one that syncs
	for i := range sets {
		if sets[i].Labels[componentLabel] == controllerComponent {
			s.Controller = true
			pods = append(pods, sets[i].Spec.Template.Spec)
		}
	}
	for i := range deployments {
		switch d := &deployments[i]; d.Labels[componentLabel] {
		case controllerComponent: // dynamic distribution of clusters makes it a Deployment
			s.Controller = true
			pods = append(pods, d.Spec.Template.Spec)
		case serverComponent:
			s.Server = d
		}
	}
	if s.Server != nil {
		own := ownOf(s.Server)
		s.Namespaces, s.OwnNamespaces = namespacesOf(s.Server.Spec.Template.Spec, params), namespacesOf(own, params)
		pods = append(pods, own)
	}
	if len(pods) > 0 {
		of := &pods[0].Containers[Container(pods[0])]
		s.Redis, s.Version = redisOf(of, params), tagOf(of.Image)
	}
	return s
}

// ServerVersion is the tag of the image of argocd-server; empty when it has none, or is not there.
func (s State) ServerVersion() string {
	if s.Server == nil {
		return ""
	}
	pod := s.Server.Spec.Template.Spec
	return tagOf(pod.Containers[Container(pod)].Image)
}

// tagOf is the tag of an image; empty for none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[colon+1:]
	}
	return ""
}

// ownOf returns the pods of argocd-server as they were before we changed them.
func ownOf(d *appsv1.Deployment) corev1.PodSpec {
	pod := *d.Spec.Template.Spec.DeepCopy()
	if before := Restore(d, RedisAt(flag(argsOf(d), "redis")), AnyNamespace()); before.Args != nil {
		pod.Containers[Container(pod)].Args = before.Args
	}
	return pod
}

// Container returns the index of the container that runs Argo CD: the one that is told of a
// Redis, else the first.
func Container(pod corev1.PodSpec) int {
	return max(0, slices.IndexFunc(pod.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "REDIS_SERVER" })
	}))
}

// redisOf reads how a container is told of its Redis: flags go before the environment, as Argo CD
// has it.
func redisOf(c *corev1.Container, params map[string]string) *Redis {
	args := slices.Concat(c.Command, c.Args)
	env := func(name string) string { return variable(c, name, params) }
	r := &Redis{Address: cmp.Or(flag(args, "redis"), env("REDIS_SERVER"), defaultRedis)}
	r.Compression = cmp.Or(flag(args, "redis-compress"), env("REDIS_COMPRESSION"), "gzip")
	for _, e := range c.Env {
		if e.Name == "REDIS_PASSWORD" && e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			r.Secret, r.Key = e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key
		}
	}
	switch {
	case has(args, "sentinel"):
		r.Cannot = "it finds Redis by sentinels"
	case has(args, "redis-use-tls"):
		r.Cannot = "it reaches Redis by TLS"
	case env("REDIS_CREDS_DIR_PATH") != "":
		r.Cannot = "it has the password of Redis from a folder"
	case !strings.Contains(r.Address, ":"):
		r.Cannot = "its Redis has an address without a port"
	}
	return r
}

// namespacesOf are the patterns of namespaces by which argocd-server takes Applications.
func namespacesOf(pod corev1.PodSpec, params map[string]string) string {
	c := &pod.Containers[Container(pod)]
	return cmp.Or(flag(slices.Concat(c.Command, c.Args), namespacesFlag),
		variable(c, "ARGOCD_APPLICATION_NAMESPACES", params))
}

// variable returns the value of a variable of a container; "" for none.
func variable(c *corev1.Container, name string, params map[string]string) string {
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	switch {
	case i < 0:
		return ""
	case c.Env[i].ValueFrom != nil && c.Env[i].ValueFrom.ConfigMapKeyRef != nil:
		return params[c.Env[i].ValueFrom.ConfigMapKeyRef.Key]
	}
	return c.Env[i].Value
}

// flag returns the value of a flag, in either of its forms; "" when it is not there. The last
// one counts.
func flag(args []string, name string) (value string) {
	for i, arg := range args {
		if after, is := strings.CutPrefix(arg, "--"+name+"="); is {
			value = after
		} else if arg == "--"+name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// has reports whether a flag is there, in any form.
func has(args []string, name string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--"+name || strings.HasPrefix(arg, "--"+name+"=")
	})
}

// MayListAll reports whether argocd-server may list Applications of all namespaces: without, it does not start
// with the flag to take them. Who may not ask that has it as if it may not.
func MayListAll(ctx context.Context, client kubernetes.Interface, server *appsv1.Deployment) (bool, error) {
	account := cmp.Or(server.Spec.Template.Spec.ServiceAccountName, "default")
	answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + server.Namespace + ":" + account,
			Groups: []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + server.Namespace},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "list", Group: cli.ApplicationResource.Group, Resource: cli.ApplicationResource.Resource,
			},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed, nil
}
