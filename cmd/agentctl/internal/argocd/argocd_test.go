package argocd

import (
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
	d := changed(server("--redis=own:1"), UseRedis(server("--redis=own:1"), "argomesh-principal:6379"))
	if s := stateOf([]appsv1.Deployment{*d}, nil, nil); s.Redis.Address != "own:1" {
		t.Errorf("got %+v", s.Redis)
	}
	if s := stateOf(nil, nil, nil); s.Redis != nil || s.HubValues() != nil {
		t.Errorf("without Argo CD: %+v", s)
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
	if c.Before == nil {
		delete(d.Annotations, RedisBefore)
	} else {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, RedisBefore, *c.Before)
	}
	return d
}

func TestUseAndRestore(t *testing.T) {
	t.Parallel()
	const ours = "argomesh-principal:6379"
	for name, args := range map[string][]string{
		"no flag":          nil,
		"one word":         {"--loglevel=debug", "--redis=own:1"},
		"two words":        {"--redis", "own:1", "--insecure"},
		"other flags stay": {"--redis-compress=none", "--insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := server(args...)
			with := changed(before, UseRedis(before, ours))
			if got := flag(argsOf(with), "redis"); got != ours || !Uses(with, ours) {
				t.Errorf("its Redis is %s", got)
			}
			if again := UseRedis(with, ours); again.Args != nil {
				t.Errorf("a second time changes %q", again.Args)
			}
			after := changed(with, Restore(with, ours))
			if got, want := flag(argsOf(after), "redis"), flag(argsOf(before), "redis"); got != want || after.Annotations[RedisBefore] != "" {
				t.Errorf("it has %q again, want %q: %v", got, want, after.Annotations)
			}
			if diff := cmp.Diff(withoutRedis(argsOf(before)), withoutRedis(argsOf(after))); diff != "" {
				t.Errorf("other arguments (-before +after):\n%s", diff)
			}
		})
	}
	set := changed(server(), UseRedis(server(), ours))
	set.Spec.Template.Spec.Containers[1].Args = []string{"/usr/local/bin/argocd-server", "--redis=other:1"}
	if c := Restore(set, ours); c.Args != nil {
		t.Errorf("what someone has set since becomes %q", c.Args)
	}
	if c := Restore(server("--redis="+ours), ours); c.Args != nil {
		t.Errorf("what was set by hand becomes %q", c.Args)
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
	use := func(d *appsv1.Deployment) Change { return UseRedis(d, "ours:1") }
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
	if before, is := got.Annotations[RedisBefore]; !is || before != "" {
		t.Errorf("its annotations are %v", got.Annotations)
	}
}
