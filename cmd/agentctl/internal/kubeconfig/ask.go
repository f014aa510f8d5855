// Package kubeconfig is `agentctl kubeconfig`: it asks the principal for a token with which a
// person reaches an agent's spoke through the hub, and makes a kubeconfig of the answer. It knows
// no signing key, and reads no Secret.
package kubeconfig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/internal/sealed"
)

const (
	// pollInterval is how often it is looked for the answer.
	pollInterval = 200 * time.Millisecond
	// tidyTimeout bounds the deletion of the request at the end.
	tidyTimeout = 5 * time.Second
)

// Question is what is asked.
type Question struct {
	// Namespace is that of the hub's Argo CD.
	Namespace string
	// Agent is the name of the agent.
	Agent string
	// Lifetime is how long the token is to live, in whole seconds.
	Lifetime time.Duration
	// Timeout is how long to wait for the answer.
	Timeout time.Duration
}

// Granted is a token, and where it counts.
type Granted struct {
	// User is whom it names.
	User string
	// Token is a secret.
	Token   string
	Expires time.Time
	// Server is the URL of the spoke's Kubernetes API behind the resource proxy. TLSServerName is
	// the name of the certificate there, empty for the host; Authorities are those of it in PEM,
	// nil for those of the system.
	Server, TLSServerName string
	Authorities           []byte
}

// Ask asks the principal of the hub that config is for. The error is one line with the cure.
func Ask(ctx context.Context, config *rest.Config, q Question) (*Granted, error) {
	doing := fmt.Sprintf("ask for a token of agent %q", q.Agent)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	key, err := sealed.NewKey()
	if err != nil {
		return nil, err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return nil, cli.ExplainAPI(err, doing+": learn who you are", "hub", config.Host)
	}
	requests := objects.Resource(v1alpha1.AccessRequestResource).Namespace(q.Namespace)
	request, err := create(ctx, requests, request(q, key, review.Status.UserInfo))
	if cli.IsCRDMissing(err) {
		return nil,
			fmt.Errorf("%s: the hub at %s does not know AccessRequests: upgrade the principal there with \"agentctl hub"+
				" install\", or choose another hub with --context", doing, config.Host)
	}
	if err != nil {
		return nil, cli.ExplainAPI(err, doing, "hub", config.Host)
	}
	defer tidy(ctx, requests, request)
	answered, err := await(ctx, requests, request.Name, q.Timeout)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("%s: the principal has not answered within %v: see that it runs in namespace %s with"+
			" resource_proxy.credentials.enabled and a person_life (\"agentctl check hub\"), and its log", doing, q.Timeout,
			q.Namespace)
	}
	if err != nil {
		return nil, cli.ExplainAPI(err, doing, "hub", config.Host)
	}
	if said := answered.Status; said.Decision != v1alpha1.AccessGranted {
		return nil, fmt.Errorf("%s: refused (%s): %s%s", doing, cli.CleanText(said.Reason), cli.CleanText(said.Message),
			cli.SeeReason(said.Reason))
	}
	return open(answered, key)
}

// open returns what an answer says.
func open(answered *v1alpha1.AccessRequest, key sealed.Key) (*Granted, error) {
	said := answered.Status
	text, err := key.Open(answered.SealedFor(), said.SealedToken)
	if err != nil {
		return nil, fmt.Errorf("the answer is not sealed to this request: %w; ask again, and tell the hub's administrator",
			err)
	}
	out := &Granted{
		User: answered.Spec.User.Username, Token: string(text), Server: said.Server, TLSServerName: said.TLSServerName,
		Authorities: said.CAData,
	}
	if said.ExpirationTimestamp != nil {
		out.Expires = said.ExpirationTimestamp.Time
	}
	return out, nil
}

// request is the object that asks.
func request(q Question, key sealed.Key, user authenticationv1.UserInfo) *v1alpha1.AccessRequest {
	out := &v1alpha1.AccessRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: q.Agent + "-", Namespace: q.Namespace},
		Spec: v1alpha1.AccessRequestSpec{
			Agent: q.Agent, PublicKey: base64.StdEncoding.EncodeToString(key.Public()),
			ExpirationSeconds: int64(q.Lifetime / time.Second),
			User:              v1alpha1.AccessRequestUser{Username: user.Username, UID: user.UID, Groups: user.Groups},
		},
	}
	for name, values := range user.Extra {
		if out.Spec.User.Extra == nil {
			out.Spec.User.Extra = map[string]v1alpha1.AccessRequestExtra{}
		}
		out.Spec.User.Extra[name] = v1alpha1.AccessRequestExtra(values)
	}
	out.SetGroupVersionKind(v1alpha1.AccessRequestGroupVersionKind)
	return out
}

func create(ctx context.Context, requests dynamic.ResourceInterface,
	request *v1alpha1.AccessRequest) (*v1alpha1.AccessRequest, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(request)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	obj, err := requests.Create(ctx, &unstructured.Unstructured{Object: content},
		metav1.CreateOptions{FieldManager: "agentctl"})
	if err != nil {
		return nil, err
	}
	return parse(obj)
}

func parse(obj *unstructured.Unstructured) (*v1alpha1.AccessRequest, error) {
	var out v1alpha1.AccessRequest
	return &out, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &out)
}

// await returns the request once there is an answer.
func await(ctx context.Context, requests dynamic.ResourceInterface, name string,
	timeout time.Duration) (answered *v1alpha1.AccessRequest, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		obj, err := requests.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false,
				errors.New("the request was deleted before there was an answer: too many wait, or someone did; ask again")
		}
		if err != nil {
			return false, err
		}
		answered, err = parse(obj)
		return err == nil && answered.Status.Decision != "", err
	})
	return answered, err
}

// tidy deletes the request, also after Ctrl-C. The principal does so, too, some minutes later.
func tidy(ctx context.Context, requests dynamic.ResourceInterface, request *v1alpha1.AccessRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	_ = requests.Delete(ctx, request.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &request.UID}})
}
