package accessrequests

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube/collection"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/internal/sealed"
	"github.com/argomesh/argomesh/proxies/token"
)

const (
	// retention is how long a request stays, answered or not.
	retention = 5 * time.Minute
	// mostWaiting is how many requests wait for an answer; those beyond, which came last, are
	// deleted without one.
	mostWaiting = 1000
	// mostOfOne is how many of them are of one person, so that no one leaves no room to others.
	mostOfOne = 20
	// retry is the pause after a request that could not be answered, and cleanupInterval that
	// between looks for those that are to be deleted.
	retry, cleanupInterval = time.Second, 30 * time.Second
	// callTimeout bounds one call to the API server.
	callTimeout = 10 * time.Second
)

// Config holds what Requests need. Fields without a stated default are required.
type Config struct {
	Client dynamic.Interface
	// Namespace is that of the hub's Argo CD.
	Namespace string
	// Agent returns the Agent of a name, as it is registered.
	Agent func(identity.AgentName) (agent v1alpha1.Agent, known bool)
	// Sign makes out a token of an Agent to a person, that lives no longer than life. An error that
	// wraps token.ErrNoKey says that none can be signed yet.
	Sign func(agent *v1alpha1.Agent, person string, life time.Duration) (token.Signed, error)
	// Authorities are those of the proxy's certificate, in PEM, nil for those of the system; false
	// while they are not known.
	Authorities func() (pem []byte, known bool)
	// ProxyURL is where Argo CD reaches the resource proxy, and PublicURL where people do; empty
	// for the same.
	ProxyURL, PublicURL string
	// MaxLifetime is the longest that a token lives.
	MaxLifetime time.Duration
	Metrics     prometheus.Registerer
	// Log is told of each answer. Its zero value writes nothing.
	Log zerolog.Logger
}

// Requests answers those of one hub.
type Requests struct {
	cfg         Config
	known       *collection.Collection[waiting]
	changed     notify.Signal
	answered    *prometheus.CounterVec
	lastFailure string // the failure that was logged last
}

// waiting is what is kept of a request: not what it asks, which is read when it is answered.
type waiting struct {
	name    string
	user    string
	uid     types.UID
	created time.Time
	decided bool
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Requests, error) {
	if cfg.Client == nil || cfg.Namespace == "" || cfg.Agent == nil || cfg.Sign == nil || cfg.Authorities == nil ||
		cfg.ProxyURL == "" || cfg.MaxLifetime <= 0 || cfg.Metrics == nil {
		return nil,
			errors.New("access requests: client, namespace, agent, sign, authorities, proxy URL, life and metrics are required")
	}
	r := &Requests{cfg: cfg, changed: notify.NewSignal(), answered: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_access_requests_total",
		Help: "AccessRequests answered by this process, by result: Granted, a reason of a refusal, or dropped for one without an answer.",
	}, []string{"result"})}
	r.known = collection.New(collection.Config[waiting]{
		Reflect: reflector.Config{
			Resource: r.objects(), What: "access requests", Streams: cfg.Client, MostRetry: 15 * time.Second,
		},
		Value: func(o *unstructured.Unstructured) (waiting, bool, error) {
			decision, _, _ := unstructured.NestedString(o.Object, "status", "decision")
			user, _, _ := unstructured.NestedString(o.Object, "spec", "user", "username")
			// What goes already is in no one's way, however long it takes.
			w := waiting{o.GetName(), user, o.GetUID(), o.GetCreationTimestamp().Time, decision != ""}
			return w, o.GetDeletionTimestamp() == nil, nil
		},
		Changed: func([]collection.Change[waiting]) { r.changed.Notify() },
		Readable: func(err error) {
			if err != nil {
				cfg.Log.Warn().Err(err).Msg("cannot read AccessRequests, retrying; \"agentctl kubeconfig\" waits until this succeeds. The principal's chart has their definition, and the right to read them")
				return
			}
			cfg.Log.Info().Msg("AccessRequests can be read again")
		},
	})
	return r, cfg.Metrics.Register(r.answered)
}

func (r *Requests) objects() dynamic.ResourceInterface {
	return r.cfg.Client.Resource(v1alpha1.AccessRequestResource).Namespace(r.cfg.Namespace)
}

// Run answers until ctx is done.
func (r *Requests) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { r.known.Run(ctx); return nil })
	g.Go(func() error {
		for {
			pause := r.reconcile(ctx)
			select {
			case <-ctx.Done():
				return nil
			case <-r.changed:
			case <-time.After(pause):
			}
		}
	})
	return g.Wait()
}

// reconcile answers what waits and deletes what is old. It returns how soon to look again.
func (r *Requests) reconcile(ctx context.Context) time.Duration {
	all := r.known.All()
	slices.SortFunc(all, func(a, b waiting) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	pause := cleanupInterval
	defer func() {
		if pause == cleanupInterval { // what fails next is news again
			r.lastFailure = ""
		}
	}()
	answer, drop := sorted(all, time.Now())
	for _, do := range []struct {
		with []waiting
		what func(context.Context, waiting) error
	}{{answer, r.answer}, {drop, r.drop}} { // who waits goes first
		for _, w := range do.with {
			if ctx.Err() != nil {
				return pause
			}
			if r.failed(do.what(ctx, w)) {
				pause = retry
			}
		}
	}
	return pause
}

// sorted returns which of all requests, the oldest first, are to be answered, and which are to go: what is old, and
// what is beyond what may wait, of one person or of all.
func sorted(all []waiting, now time.Time) (answer, drop []waiting) {
	of := map[string]int{}
	for _, w := range all {
		switch {
		case now.Sub(w.created) > retention:
			drop = append(drop, w)
		case w.decided:
		case of[w.user] == mostOfOne || len(answer) == mostWaiting:
			drop = append(drop, w)
		default:
			of[w.user]++
			answer = append(answer, w)
		}
	}
	return answer, drop
}

// failed says once that something does not work; it reports whether it does not.
func (r *Requests) failed(err error) bool {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false // what is newer comes by the watch
	}
	if text := err.Error(); text != r.lastFailure {
		r.lastFailure = text
		r.cfg.Log.Warn().Err(err).Msg("cannot answer an AccessRequest, retrying")
	}
	return true
}

func (r *Requests) drop(ctx context.Context, w waiting) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !w.decided {
		r.answered.WithLabelValues("dropped").Inc()
	}
	return r.objects().Delete(ctx, w.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &w.uid}})
}

// answer decides on one request and writes what was decided, unless it is another one now.
func (r *Requests) answer(ctx context.Context, w waiting) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	obj, err := r.objects().Get(ctx, w.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var request v1alpha1.AccessRequest
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &request); err != nil {
		return fmt.Errorf("read AccessRequest %s: %w", w.name, err)
	}
	if request.Status.Decision != "" {
		return nil
	}
	status, err := r.statusOf(ctx, &request)
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	obj.Object["status"] = content
	_, err = r.objects().UpdateStatus(ctx, obj, metav1.UpdateOptions{FieldManager: "argomesh-principal"})
	if err != nil {
		return err
	}
	r.logAnswer(&request, status)
	return nil
}

// logAnswer logs an answer, and counts it.
func (r *Requests) logAnswer(request *v1alpha1.AccessRequest, status v1alpha1.AccessRequestStatus) {
	event, result := r.cfg.Log.Info(), string(status.Decision)
	event = event.Str("user", request.Spec.User.Username).Str("agent", request.Spec.Agent).Str("request", request.Name)
	if status.Decision == v1alpha1.AccessRefused {
		r.answered.WithLabelValues(status.Reason).Inc()
		event.Str("reason", status.Reason).Msg("refused a user token for an agent")
		return
	}
	r.answered.WithLabelValues(result).Inc()
	event.Time("expires", status.ExpirationTimestamp.Time).Msg("issued a user token for an agent")
}

// statusOf returns the answer to a request. An error says that there is none yet.
func (r *Requests) statusOf(ctx context.Context,
	request *v1alpha1.AccessRequest) (v1alpha1.AccessRequestStatus, error) {
	facts, err := r.facts(ctx, request)
	if err != nil {
		return v1alpha1.AccessRequestStatus{}, err
	}
	refusal := Decide(request, facts)
	if refusal == (Refusal{}) {
		var out v1alpha1.AccessRequestStatus
		if out, refusal, err = r.grant(request, facts.Agent); err != nil || refusal == (Refusal{}) {
			return out, err
		}
	}
	return v1alpha1.AccessRequestStatus{Decision: v1alpha1.AccessRefused, Reason: refusal.Reason,
		Message: refusal.Message}, nil
}

// grant makes out the token.
func (r *Requests) grant(request *v1alpha1.AccessRequest, agent *v1alpha1.Agent) (out v1alpha1.AccessRequestStatus,
	refusal Refusal, err error) {
	authorities, known := r.cfg.Authorities()
	if !known {
		return out, refusal, errors.New("the authorities of the resource proxy are not known yet")
	}
	if name := request.Spec.User.Username; len(name) > token.MaxPerson {
		return out, Refusal{ReasonUnusable, fmt.Sprintf("the name of the user has %d bytes, more than %d", len(name),
			token.MaxPerson)}, nil
	}
	var box []byte
	signed, err := r.cfg.Sign(agent, request.Spec.User.Username, LifetimeOf(request, r.cfg.MaxLifetime))
	if err != nil {
		return out, refusal, err
	}
	public, err := base64.StdEncoding.DecodeString(request.Spec.PublicKey)
	if err == nil {
		box, err = sealed.Seal(public, request.SealedFor(), []byte(signed.Text))
	}
	if err != nil {
		return out, Refusal{ReasonUnusable, "spec.publicKey is not an X25519 key: make it as agentctl does"}, nil //nolint:nilerr // it is the answer
	}
	server, name := r.server(request.Spec.Agent)
	return v1alpha1.AccessRequestStatus{
		Decision: v1alpha1.AccessGranted, SealedToken: box, ExpirationTimestamp: &metav1.Time{Time: signed.Expiry},
		Server: server, TLSServerName: name, CAData: authorities,
	}, refusal, nil
}

// server is where a person reaches an agent's spoke, and the name of the certificate there where
// that is not the host.
func (r *Requests) server(agent string) (address, tlsName string) {
	public := cmp.Or(r.cfg.PublicURL, r.cfg.ProxyURL)
	inside, err := url.Parse(r.cfg.ProxyURL)
	outside, also := url.Parse(public)
	if err == nil && also == nil && inside.Hostname() != outside.Hostname() {
		tlsName = inside.Hostname()
	}
	return strings.TrimRight(public, "/") + "/agents/" + agent, tlsName
}
