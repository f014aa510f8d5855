package token

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
)

// Bounds and defaults of the settings.
const (
	// DefaultLife is that of a token.
	DefaultLife = 24 * time.Hour
	// DefaultKeyLife is how long a key signs.
	DefaultKeyLife = 7 * 24 * time.Hour
	// MinLife and MaxLife bound the life of a token.
	MinLife = 5 * time.Minute
	MaxLife = 30 * 24 * time.Hour
)

const (
	// resyncInterval is how often the Secret is read although the watch showed no change.
	resyncInterval = time.Minute
	// retryFirst and retryMost bound the pause after a failure.
	retryFirst = 250 * time.Millisecond
	retryMost  = 15 * time.Second
	// callTimeout bounds one call to the API server.
	callTimeout = 10 * time.Second
)

// Secrets are the Secrets of one namespace, as client-go's typed client has them.
type Secrets interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error)
	Update(ctx context.Context, secret *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Config holds what Keys need. Fields without a stated default are required.
type Config struct {
	// Secrets and Namespace are those of the hub's Argo CD.
	Secrets   Secrets
	Namespace string
	// HubUID returns the hub's identity, which is part of the issuer. It waits until
	// that is known; false means that ctx was done first.
	HubUID func(ctx context.Context) (uid string, known bool)
	// Life is that of a token, in whole seconds, between MinLife and MaxLife. Zero
	// means DefaultLife.
	Life time.Duration
	// KeyLife is how long a key signs, no shorter than Life. Zero means DefaultKeyLife,
	// or Life if that is longer.
	KeyLife time.Duration
	// Acknowledged reports whether all who check tokens beside this process, Envoy
	// that is, have the key of that ID; Keys.AcknowledgedChanged says that its answer has
	// changed. It does not block. Nil means that there is no one else.
	Acknowledged func(keyID string) bool
	Metrics      prometheus.Registerer
	// Log gets changes of keys. Its zero value writes nothing.
	Log zerolog.Logger
}

// Keys are the signing keys of a hub, as the Secret has them. Their methods may be
// called concurrently, and while Run is not running: then what was last read counts.
type Keys struct {
	cfg          Config
	rotation     Rotation
	metrics      *metrics
	acknowledged notify.Signal // has a value when the answer of Acknowledged may have changed

	mu      sync.RWMutex // guards what follows
	issuer  string
	state   State
	book    *book // of state and issuer
	known   bool  // the Secret was read, or is known to be absent
	problem error // why the Secret cannot be used; state is what it was before
	changed notify.Broadcast
}

// New checks cfg and registers metrics; it starts nothing.
func New(cfg Config) (*Keys, error) {
	if cfg.Life == 0 {
		cfg.Life = DefaultLife
	}
	if cfg.KeyLife == 0 {
		cfg.KeyLife = max(DefaultKeyLife, cfg.Life)
	}
	if cfg.Acknowledged == nil {
		cfg.Acknowledged = func(string) bool { return true }
	}
	switch {
	case cfg.Secrets == nil || cfg.Namespace == "" || cfg.HubUID == nil || cfg.Metrics == nil:
		return nil, errors.New("token keys: secrets, namespace, hub uid and metrics are required")
	case cfg.Life < MinLife || cfg.Life > MaxLife || cfg.Life%time.Second != 0:
		return nil, fmt.Errorf("token keys: a token of %v: use whole seconds between %v and %v", cfg.Life, MinLife, MaxLife)
	case cfg.KeyLife < cfg.Life:
		return nil, fmt.Errorf("token keys: a key of %v signs tokens of %v: it must live at least as long", cfg.KeyLife,
			cfg.Life)
	}
	k := &Keys{
		cfg: cfg, rotation: Rotation{Life: cfg.Life, KeyLife: cfg.KeyLife},
		acknowledged: notify.NewSignal(),
	}
	k.openBook()
	var err error
	if k.metrics, err = newMetrics(cfg.Metrics, func() float64 { return float64(k.current().seen.Len()) }); err != nil {
		return nil, err
	}
	return k, nil
}

// openBook begins a book for the keys as they are. It is called with mu locked, or before k is
// shared.
func (k *Keys) openBook() { k.book = newBook(k.state, k.issuer, maxRemembered) }

// current is the book of now.
func (k *Keys) current() *book {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.book
}

// Changed returns a channel that is closed when the keys change next.
func (k *Keys) Changed() <-chan struct{} {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.changed.Next()
}

// Ready returns nil when tokens can be signed and checked, and otherwise why not: an
// error that wraps ErrUnusable when the Secret is there and a person has to act.
func (k *Keys) Ready() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	switch {
	case k.problem != nil:
		return k.problem
	case !k.known:
		return fmt.Errorf("%w: Secret %s was not read yet", ErrNoKey, SecretName)
	case k.state.Current == nil:
		return fmt.Errorf("%w: the first one waits to be acknowledged", ErrNoKey)
	}
	return nil
}

// Published are the public keys that check tokens.
type Published struct {
	// Issuer is that of the tokens; empty while the hub's identity is not known.
	Issuer string
	// Keys is their JSON Web Key Set (RFC 7517), without any private part. While there
	// are no keys it is an empty set.
	Keys jose.JSONWebKeySet
	// KeyIDs are those in the set: of the current key, the next and the previous one.
	KeyIDs []string
}

// Published returns the public keys of now.
func (k *Keys) Published() Published {
	k.mu.RLock()
	state, issuer := k.state, k.issuer
	k.mu.RUnlock()
	out := Published{Issuer: issuer, Keys: jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}}
	for _, key := range []*Key{state.Current, state.Next, state.Previous} {
		if key != nil {
			out.Keys.Keys = append(out.Keys.Keys, key.public())
			out.KeyIDs = append(out.KeyIDs, key.ID)
		}
	}
	return out
}

// Sign returns a new token of agent, whose Agent is holder. The error wraps ErrNoKey while
// no key signs.
func (k *Keys) Sign(agent identity.AgentName, holder Holder) (Signed, error) {
	return k.signFor(agent, holder, "", k.cfg.Life)
}

// SignFor returns a new token of agent, whose Agent is holder, that is made out to a person. It
// lives no longer than life, in whole seconds, nor than those of Sign. The error wraps ErrNoKey
// while no key signs.
func (k *Keys) SignFor(agent identity.AgentName, holder Holder, person string, life time.Duration) (Signed, error) {
	if person == "" || len(person) > MaxPerson {
		return Signed{}, fmt.Errorf("token of agent %s: the name of a person has 1 to %d bytes, not %d", agent, MaxPerson,
			len(person))
	}
	return k.signFor(agent, holder, person, life.Truncate(time.Second))
}

func (k *Keys) signFor(agent identity.AgentName, holder Holder, person string, life time.Duration) (Signed, error) {
	k.mu.RLock()
	key, issuer := k.state.Current, k.issuer
	k.mu.RUnlock()
	if key == nil {
		return Signed{}, fmt.Errorf("token of agent %s: %w", agent, ErrNoKey)
	}
	signed, err := sign(key, issuer, agent, holder, person, uuid.NewString(), time.Now(),
		min(life, k.cfg.Life, key.Longest))
	if err == nil {
		k.metrics.signed.Inc()
	}
	return signed, err
}

// Verify returns the agent for which text is a token that is valid now. The error
// wraps ErrInvalid, or ErrNoKey before the keys were read for the first time, so that
// no one knows.
func (k *Keys) Verify(text string) (identity.AgentName, error) {
	k.mu.RLock()
	known := k.known && k.issuer != ""
	k.mu.RUnlock()
	if !known {
		return identity.AgentName{}, fmt.Errorf("verify a token: %w", ErrNoKey)
	}
	v, err := k.current().check(text, time.Now())
	if err != nil {
		k.metrics.verified.WithLabelValues(resultRefused).Inc()
		return identity.AgentName{}, err
	}
	k.metrics.verified.WithLabelValues(resultOK).Inc()
	return v.agent, nil
}

// Revoked reports whether the key of a token that was good is gone before the token's
// end, as it is when someone deletes the Secret. Without that a key outlives what it
// signed. While no one knows, and of what was never good, it returns false. It does not
// block.
func (k *Keys) Revoked(text string) bool {
	k.mu.RLock()
	known, book := k.known, k.book
	k.mu.RUnlock()
	return known && orphan(book.keys, text, time.Now())
}

// Inspect returns what is known of a token of agent that is valid now, bound to holder, and made
// out to no person.
// The error wraps ErrInvalid, or ErrNoKey while the keys were not read, so that no one knows.
func (k *Keys) Inspect(agent identity.AgentName, holder Holder, text string) (Signed, error) {
	k.mu.RLock()
	known := k.known && k.problem == nil
	k.mu.RUnlock()
	if !known {
		return Signed{}, fmt.Errorf("inspect a token: %w", ErrNoKey)
	}
	v, err := k.current().check(text, time.Now())
	switch {
	case err != nil:
		return Signed{}, err
	case v.agent != agent:
		return Signed{}, fmt.Errorf("%w: it is of agent %s", ErrInvalid, v.agent)
	case v.bound.Person != "":
		return Signed{}, fmt.Errorf("%w: it was issued to a user", ErrInvalid)
	case !holder.is(v.bound, v.signed.IssuedAt):
		return Signed{}, fmt.Errorf("%w: it is of an Agent of that name before, or was ended", ErrInvalid)
	}
	signed := v.signed
	signed.Text = text
	return signed, nil
}

// AcknowledgedChanged makes Rotate ask Acknowledged again. It does not block.
func (k *Keys) AcknowledgedChanged() {
	k.acknowledged.Notify()
}

// Run keeps Keys as the Secret is until ctx is done, and returns nil then. While the
// API server is away, or the Secret cannot be used, what was read before counts; once
// the Secret is gone, nothing does.
func (k *Keys) Run(ctx context.Context) error {
	hub, known := k.cfg.HubUID(ctx)
	if !known {
		return nil // ctx is done
	}
	k.mu.Lock()
	k.issuer = Issuer(hub)
	k.openBook()
	k.mu.Unlock()
	retry := &retryPause{log: k.cfg.Log, message: "cannot read the signing keys, retrying; known ones stay in use"}
	for {
		err := k.follow(ctx, hub, retry)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // an ordered stop, which is what err tells of
		}
		select {
		case <-time.After(retry.failed(err)):
		case <-ctx.Done():
			return nil
		}
	}
}

// follow reads the Secret now, whenever it changes, and every minute, until that
// fails or the watch ends.
func (k *Keys) follow(ctx context.Context, hub string, retry *retryPause) error {
	w, err := k.cfg.Secrets.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, SecretName).String(),
	})
	if err != nil {
		return fmt.Errorf("watch secret %s: %w", SecretName, err)
	}
	defer w.Stop()
	resync := time.NewTicker(resyncInterval)
	defer resync.Stop()
	for {
		if err := k.read(ctx, hub); err != nil {
			return err
		}
		retry.reset()
		select {
		case <-ctx.Done():
			return nil
		case <-resync.C:
		case event, open := <-w.ResultChan():
			if !open {
				return nil // as every watch does after a while
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watch secret %s: %w", SecretName, apierrors.FromObject(event.Object))
			}
		}
	}
}

// read takes over what the Secret holds.
func (k *Keys) read(ctx context.Context, hub string) error {
	state, _, err := k.get(ctx, hub)
	if err != nil && !errors.Is(err, ErrUnusable) {
		return err
	}
	k.setState(state, err)
	return nil
}

// get reads the Secret from the API server's quorum; nil when there is none.
func (k *Keys) get(ctx context.Context, hub string) (State, *corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret, err := k.cfg.Secrets.Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return State{}, nil, nil
	}
	if err != nil {
		return State{}, nil, fmt.Errorf("get secret %s: %w", SecretName, err)
	}
	state, err := fromSecret(secret, hub)
	return state, secret, err
}

// setState makes state that of Keys, unless a problem keeps the Secret from being used.
func (k *Keys) setState(state State, problem error) {
	k.mu.Lock()
	before, beforeKnown := k.state, k.known
	logged := k.problem != nil && problem != nil && k.problem.Error() == problem.Error()
	was := k.problem
	k.problem = problem
	if problem == nil {
		k.state, k.known = state, true
		k.openBook()
	}
	if (problem == nil && (!beforeKnown || !same(before, state))) || (was == nil) != (problem == nil) {
		k.changed.Notify()
	}
	state = k.state
	k.mu.Unlock()

	k.metrics.show(state, problem)
	switch {
	case problem != nil && !logged:
		k.cfg.Log.Error().Err(problem).Str("secret", k.cfg.Namespace+"/"+SecretName).
			Msg("signing keys of the resource proxy cannot be used: restore the Secret, or delete it to start with new keys, which ends every token; what was read before stays in use")
	case problem == nil && was != nil:
		k.cfg.Log.Info().Msg("signing keys of the resource proxy can be used again")
	}
}

// same compares what is in use of two states.
func same(a, b State) bool {
	equal := func(a, b *Key) bool {
		if a == nil || b == nil {
			return a == b
		}
		return a.ID == b.ID && a.Longest == b.Longest
	}
	return equal(a.Next, b.Next) && equal(a.Current, b.Current) && equal(a.Previous, b.Previous)
}

// Rotate keeps the Secret as Rotation wants it until ctx is done, and returns nil
// then. One process of a hub does so at a time, the holder of the principal's Lease;
// a write is tested on what was read, so that a former holder undoes nothing. Run
// must be running too: Rotate runs again when it has read something new.
func (k *Keys) Rotate(ctx context.Context) error {
	hub, known := k.cfg.HubUID(ctx)
	if !known {
		return nil // ctx is done
	}
	retry := &retryPause{log: k.cfg.Log, message: "cannot save the signing keys, retrying"}
	for {
		changed := k.Changed() // before the read, so that no change is missed
		requeueAfter, err := k.rotate(ctx, hub)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an ordered stop, which is what err tells of
		case err != nil:
			requeueAfter = retry.failed(err)
		default:
			retry.reset()
		}
		if !k.wait(ctx, changed, requeueAfter) {
			return nil
		}
	}
}

// wait returns true after d, a change of the keys or a call of AcknowledgedChanged, and false
// when ctx is done.
func (k *Keys) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-k.acknowledged:
	case <-timer.C:
	}
	return true
}

// rotate writes what is next, and returns how soon to run again.
func (k *Keys) rotate(ctx context.Context, hub string) (time.Duration, error) {
	state, secret, err := k.get(ctx, hub)
	if errors.Is(err, ErrUnusable) {
		return resyncInterval, nil // Run logs it; nothing is done about it
	}
	if err != nil {
		return 0, err
	}
	now := time.Now()
	fresh, err := NewKey(now)
	if err != nil {
		return 0, err
	}
	next, changes := k.rotation.Next(state, now, k.cfg.Acknowledged, fresh)
	if len(changes) == 0 {
		return min(k.rotation.RequeueAfter(state, now), resyncInterval), nil
	}
	if err := k.write(ctx, hub, secret, next); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return time.Second, nil // someone else wrote: read again
		}
		return 0, err
	}
	for _, change := range changes {
		k.metrics.changes.WithLabelValues(change.Kind).Inc()
		k.cfg.Log.Info().Str("change", change.Kind).Str("key", change.KeyID).Msg("signing key of the resource proxy changed")
	}
	return time.Second, nil // what was written may allow the next step
}

func (k *Keys) write(ctx context.Context, hub string, previous *corev1.Secret, state State) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret, err := toSecret(k.cfg.Namespace, hub, state)
	if err != nil {
		return err
	}
	if previous == nil {
		_, err = k.cfg.Secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		kept := previous.DeepCopy() // labels and annotations of others stay
		kept.Data = secret.Data
		_, err = k.cfg.Secrets.Update(ctx, kept, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return fmt.Errorf("write secret %s: %w", SecretName, err)
	}
	return nil
}

const fieldManager = "argomesh-principal"

// retryPause is the growing pause between attempts that fail. Each error is logged once.
type retryPause struct {
	log     zerolog.Logger
	message string
	last    string
	times   int
}

// failed returns how long to wait after err; nil is an end that is none of a failure.
func (p *retryPause) failed(err error) time.Duration {
	if err == nil {
		return retryFirst
	}
	if err.Error() != p.last {
		p.last = err.Error()
		p.log.Warn().Err(err).Msg(p.message)
	}
	d := min(retryFirst<<min(p.times, 10), retryMost)
	p.times++
	return d
}

// reset ends the pauses after a success.
func (p *retryPause) reset() { p.last, p.times = "", 0 }
