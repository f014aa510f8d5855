package argocd

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// container is one of Argo CD as its manifests have it, with further arguments.
func container(args ...string) corev1.Container {
	param := func(key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "argocd-cmd-params-cm"}, Key: key,
		}}
	}
	return corev1.Container{
		Args: append([]string{"/usr/local/bin/argocd-server"}, args...),
		Env: []corev1.EnvVar{
			{Name: "REDIS_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "argocd-redis"}, Key: "auth",
			}}},
			{Name: "REDIS_SERVER", ValueFrom: param("redis.server")},
			{Name: "REDIS_COMPRESSION", ValueFrom: param("redis.compression")},
		},
	}
}

func server(args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{componentLabel: serverComponent}}}
	// A sidecar before it is no Argo CD.
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar"}, container(args...)}
	return d
}

func TestRedisOf(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args   []string
		params map[string]string
		want   Redis
	}{
		"as the manifests have it": {want: Redis{Address: defaultRedis, Compression: "gzip"}},
		"by argocd-cmd-params-cm": {
			params: map[string]string{"redis.server": "redis.example:6380", "redis.compression": "none"},
			want:   Redis{Address: "redis.example:6380", Compression: "none"},
		},
		"a flag wins": {
			args: []string{"--redis", "flag:1"}, params: map[string]string{"redis.server": "redis.example:6380"},
			want: Redis{Address: "flag:1", Compression: "gzip"},
		},
		"the last flag wins": {
			args: []string{"--redis", "flag:1", "--redis=flag:2", "--redis-compress=none"},
			want: Redis{Address: "flag:2", Compression: "none"},
		},
		"sentinels": {
			args: []string{"--sentinel", "a:26379"},
			want: Redis{Address: defaultRedis, Compression: "gzip", Cannot: "it finds Redis by sentinels"},
		},
		"TLS": {
			args: []string{"--redis-use-tls"},
			want: Redis{Address: defaultRedis, Compression: "gzip", Cannot: "it reaches Redis by TLS"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.Secret, tc.want.Key = "argocd-redis", "auth"
			got := stateOf([]appsv1.Deployment{*server(tc.args...)}, nil, tc.params)
			if diff := cmp.Diff(&tc.want, got.Redis); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Controller || got.Server == nil {
				t.Errorf("there is a server and no controller: %+v", got)
			}
		})
	}
}

// On a hub with a controller that one's Redis counts, since argocd-server may have ours.
func TestStateHasTheControllersRedis(t *testing.T) {
	t.Parallel()
	set := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{componentLabel: controllerComponent}}}
	set.Spec.Template.Spec.Containers = []corev1.Container{container()}
	s := stateOf([]appsv1.Deployment{*server("--redis=argomesh-principal:6379")}, []appsv1.StatefulSet{set}, nil)
	if !s.Controller || s.Redis.Address != defaultRedis {
		t.Errorf("got %+v", s.Redis)
	}
	// Without one it is what argocd-server had before.
	d := changed(server("--redis=own:1"), Use(server("--redis=own:1"), RedisAt("argomesh-principal:6379"), AnyNamespace()))
	if s := stateOf([]appsv1.Deployment{*d}, nil, nil); s.Redis.Address != "own:1" {
		t.Errorf("got %+v", s.Redis)
	}
	if s := stateOf(nil, nil, nil); s.Redis != nil || s.HubValues() != nil {
		t.Errorf("without Argo CD: %+v", s)
	}
}

// What may not be read is as if it were not there, and is told from what is not there.
func TestObserveSaysWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	for resource, of := range map[string]func(Unread) error{
		"deployments": func(u Unread) error { return u.Programs }, "statefulsets": func(u Unread) error { return u.Programs },
		"configmaps": func(u Unread) error { return errors.Join(u.Params, u.Settings) },
	} {
		client := fake.NewClientset()
		if s, err := Observe(t.Context(), client, "argocd"); err != nil || s.Unread != (Unread{}) {
			t.Errorf("of nothing it says %+v, %v", s.Unread, err)
		}
		client.PrependReactor("*", resource, func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
		})
		s, err := Observe(t.Context(), client, "argocd")
		if err != nil || of(s.Unread) == nil {
			t.Errorf("without the right to read %s: %+v, %v", resource, s.Unread, err)
		}
	}
}

// changed is d after a change.
func changed(d *appsv1.Deployment, c Change) *appsv1.Deployment {
	d = d.DeepCopy()
	if c.Args == nil {
		return d
	}
	pod := &d.Spec.Template.Spec
	pod.Containers[Container(*pod)].Args = c.Args
	for name, value := range c.Annotations {
		if value == nil {
			delete(d.Annotations, name)
		} else {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, name, *value)
		}
	}
	return d
}

func TestUseAndRestore(t *testing.T) {
	t.Parallel()
	ours := []Flag{RedisAt("argomesh-principal:6379"), AnyNamespace()}
	for name, args := range map[string][]string{
		"no flag":          nil,
		"one word":         {"--loglevel=debug", "--redis=own:1", "--application-namespaces=team-*"},
		"two words":        {"--redis", "own:1", "--application-namespaces", "a,b", "--insecure"},
		"other flags stay": {"--redis-compress=none", "--insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := server(args...)
			with := changed(before, Use(before, ours...))
			if again := Use(with, ours...); again.Args != nil {
				t.Errorf("a second time changes %q", again.Args)
			}
			after := changed(with, Restore(with, ours...))
			rest := [2][]string{argsOf(before), argsOf(after)}
			for _, f := range ours {
				if !Has(with, f) {
					t.Errorf("--%s is %s", f.Name, flag(argsOf(with), f.Name))
				}
				if got, want := flag(argsOf(after), f.Name), flag(argsOf(before), f.Name); got != want {
					t.Errorf("--%s is %q again, want %q", f.Name, got, want)
				}
				rest = [2][]string{without(rest[0], f.Name), without(rest[1], f.Name)}
			}
			if len(after.Annotations) > 0 {
				t.Errorf("annotations stay: %v", after.Annotations)
			}
			if diff := cmp.Diff(rest[0], rest[1]); diff != "" {
				t.Errorf("other arguments (-before +after):\n%s", diff)
			}
		})
	}
	redis := ours[0]
	set := changed(server(), Use(server(), ours...))
	set.Spec.Template.Spec.Containers[1].Args = []string{"/usr/local/bin/argocd-server", "--redis=other:1", "--application-namespaces=*"}
	if got, want := Restore(set, ours...).Args, []string{"/usr/local/bin/argocd-server", "--redis=other:1"}; !slices.Equal(got, want) {
		t.Errorf("where someone has set one since the arguments become %q, want %q", got, want)
	}
	if c := Restore(server("--redis="+redis.Value), redis); c.Args != nil {
		t.Errorf("what was set by hand becomes %q", c.Args)
	}
}

// Of which namespaces argocd-server takes Applications its flag says, before a variable and what that is of.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	params := map[string]string{"application.namespaces": "team-*"}
	from := server()
	c := &from.Spec.Template.Spec.Containers[1]
	c.Env = append(c.Env, corev1.EnvVar{Name: "ARGOCD_APPLICATION_NAMESPACES", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "application.namespaces"},
	}})
	with := changed(from, Use(from, AnyNamespace()))
	for name, tc := range map[string]struct {
		d         *appsv1.Deployment
		params    map[string]string
		want, own string
	}{
		"neither":      {server(), nil, "", ""},
		"settings":     {from, params, "team-*", "team-*"},
		"no settings":  {from, nil, "", ""},
		"a flag":       {server("--application-namespaces=a"), params, "a", "a"},
		"ours":         {changed(server(), Use(server(), AnyNamespace())), nil, "*", ""},
		"ours before":  {with, params, "*", "team-*"},
		"by hand, all": {server("--application-namespaces=*"), nil, "*", "*"},
	} {
		s := stateOf([]appsv1.Deployment{*tc.d}, nil, tc.params)
		if s.Namespaces != tc.want || s.OwnNamespaces != tc.own {
			t.Errorf("%s: it has %q, and %q of its own; want %q and %q", name, s.Namespaces, s.OwnNamespaces, tc.want, tc.own)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	s := stateOf([]appsv1.Deployment{*server()}, nil, map[string]string{"redis.compression": "none"})
	want := map[string]any{
		"config": map[string]any{
			"redis": map[string]any{
				"address": defaultRedis, "password_file": "/run/argocd-redis/auth", "compression": "none",
			},
			"redis_proxy": map[string]any{"enabled": true},
		},
		"extraVolumes": []any{map[string]any{"name": "argocd-redis", "secret": map[string]any{"secretName": "argocd-redis"}}},
		"extraVolumeMounts": []any{
			map[string]any{"name": "argocd-redis", "mountPath": "/run/argocd-redis", "readOnly": true},
		},
	}
	if diff := cmp.Diff(want, FillIn(nil, s.SpokeValues())); diff != "" {
		t.Errorf("of a spoke (-want +got):\n%s", diff)
	}
	// What someone says wins, and volumes that are there stay.
	given := map[string]any{
		"config":       map[string]any{"envoy": map[string]any{"redis": "0.0.0.0:7000"}},
		"extraVolumes": []any{"theirs"},
	}
	got := FillIn(given, s.HubValues())
	config, _ := got["config"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"redis_tls": "none"}, config["envoy"]); diff != "" {
		t.Errorf("of a hub (-want +got):\n%s", diff)
	}
	if volumes, _ := got["extraVolumes"].([]any); len(volumes) != 2 || volumes[0] != "theirs" {
		t.Errorf("the volumes are %v", got["extraVolumes"])
	}
	for _, key := range []string{"redis", "redis_proxy"} {
		if got := FillIn(map[string]any{"config": map[string]any{key: map[string]any{}}}, s.HubValues()); got != nil {
			t.Errorf("with %s given it fills in %v", key, got)
		}
	}
}

func TestManager(t *testing.T) {
	t.Parallel()
	controller := true
	for want, o := range map[string]metav1.ObjectMeta{
		"":              {Labels: map[string]string{"app.kubernetes.io/managed-by": "kubectl"}},
		"helm":          {Annotations: map[string]string{"meta.helm.sh/release-name": "argocd"}},
		"Flux":          {Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "argocd"}},
		"Argo CD":       {Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "argocd:apps/Deployment:argocd/argocd-server"}},
		"ArgoCD argocd": {OwnerReferences: []metav1.OwnerReference{{Kind: "ArgoCD", Name: "argocd", Controller: &controller}}},
	} {
		if got := Manager(&o); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A Deployment that changed meanwhile is read and decided on again, and what someone else did to
// its arguments stays.
func TestApplyDecidesAgain(t *testing.T) {
	t.Parallel()
	read := server("--insecure")
	read.Namespace, read.Name = "argocd", "argocd-server"
	read.Spec.Template.Spec.Containers[1].Name = "argocd-server"
	now := read.DeepCopy()
	now.Spec.Template.Spec.Containers[1].Args = []string{"/usr/local/bin/argocd-server", "--loglevel=debug"}
	client := fake.NewClientset(now)
	tries := 0
	client.PrependReactor("patch", "deployments", func(k8stesting.Action) (bool, runtime.Object, error) {
		tries++
		if tries == 1 {
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "argocd-server", nil)
		}
		return false, nil, nil
	})
	use := func(d *appsv1.Deployment) Change { return Use(d, RedisAt("ours:1")) }
	if err := Apply(t.Context(), client, read, use, false); err != nil {
		t.Fatal(err)
	}
	got, err := client.AppsV1().Deployments("argocd").Get(t.Context(), "argocd-server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/usr/local/bin/argocd-server", "--loglevel=debug", "--redis=ours:1"}
	if diff := cmp.Diff(want, argsOf(got)); diff != "" || tries != 2 {
		t.Errorf("after %d tries (-want +got):\n%s", tries, diff)
	}
	if before, is := got.Annotations[RedisAt("").Before]; !is || before != "" {
		t.Errorf("its annotations are %v", got.Annotations)
	}
}
