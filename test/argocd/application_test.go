package argocd

import (
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	synccommon "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/stream"
)

// TestCopy checks that Argo CD reads a copy, and reads in it what it reads in
// the original.
func TestCopy(t *testing.T) {
	tests := map[string]struct {
		mode stream.Mode
		from string // namespace of the original
		want func(spec *v1alpha1.ApplicationSpec)
	}{
		"of a managed Application": {stream.Managed, agentName, func(spec *v1alpha1.ApplicationSpec) {
			spec.Destination.Name = "in-cluster"
		}},
		"of an autonomous Application": {stream.Autonomous, argocd, func(spec *v1alpha1.ApplicationSpec) {
			spec.Project = agentName + "-default"
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, test.mode, func(w *linkEnv) {
				source, sink, to := w.hub, w.spoke, argocd
				if test.mode == stream.Autonomous {
					source, sink, to = w.spoke, w.hub, agentName
				}
				original := guestbook(test.from)
				w.put(source, appKey(test.from), original)
				w.settle()
				got := w.app(sink, to)
				want := original.Spec.DeepCopy()
				test.want(want)
				if diff := cmp.Diff(want, &got.Spec); diff != "" {
					t.Errorf("spec of the copy (-want +got)\n%s", diff)
				}
				if diff := cmp.Diff(original.Labels, got.Labels); diff != "" {
					t.Errorf("labels of the copy (-want +got)\n%s", diff)
				}
			})
		})
	}
}

// TestCascade holds what we take for a cascade against what Argo CD does.
func TestCascade(t *testing.T) {
	finalizers := []string{
		v1alpha1.ResourcesFinalizerName, v1alpha1.ForegroundPropagationPolicyFinalizer, v1alpha1.BackgroundPropagationPolicyFinalizer,
		v1alpha1.ResourcesFinalizerName + "/other", v1alpha1.PostDeleteFinalizerName, v1alpha1.PostDeleteFinalizerName + "/cleanup",
		v1alpha1.PreDeleteFinalizerName, "example.org/foreign",
	}
	for _, finalizer := range finalizers {
		t.Run(strings.ReplaceAll(finalizer, "/", " "), func(t *testing.T) {
			run(t, stream.Managed, func(w *linkEnv) {
				app := guestbook(agentName)
				app.Finalizers = []string{finalizer}
				w.put(w.hub, appKey(agentName), app)
				w.settle()
				if copied := w.app(w.spoke, argocd); len(copied.Finalizers) != 0 {
					t.Errorf("before the deletion the copy has finalizers %v", copied.Finalizers)
				}
				w.remove(w.hub, appKey(agentName))
				w.settle()
				copied := &v1alpha1.Application{}
				if got, want := w.read(w.spoke, appKey(argocd), copied), app.CascadedDeletion(); got != want {
					// Without a cascade the copy is gone at once, and its workloads stay.
					t.Fatalf("the copy waits for Argo CD on the spoke: %t; Argo CD cascades: %t", got, want)
				}
				if !app.CascadedDeletion() {
					return
				}
				if diff := cmp.Diff(app.GetPropagationPolicy(), copied.GetPropagationPolicy()); diff != "" || copied.DeletionTimestamp == nil {
					t.Errorf("deleted %v, propagation policy of the copy (-want +got)\n%s", copied.DeletionTimestamp, diff)
				}
				copied.UnSetCascadedDeletion() // Argo CD on the spoke is done
				w.put(w.spoke, appKey(argocd), copied)
				<-time.After(time.Minute)
				w.settle()
				if w.read(w.hub, appKey(agentName), &v1alpha1.Application{}) {
					t.Error("the hub's object is still there")
				}
			})
		})
	}
}

// TestRelease checks the state in which a copy goes without its workloads, which
// a foreign finalizer holds for us to see.
func TestRelease(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		w.put(w.hub, appKey(agentName), guestbook(agentName))
		w.settle()
		copied := w.app(w.spoke, argocd)
		copied.SetPostDeleteFinalizer()
		copied.SetPostDeleteFinalizer("cleanup")
		copied.SetPreDeleteFinalizer()
		copied.Finalizers = append(copied.Finalizers, "example.org/foreign")
		w.put(w.spoke, appKey(argocd), copied)
		w.settle()
		w.remove(w.hub, appKey(agentName))
		w.settle()
		copied = w.app(w.spoke, argocd)
		if diff := cmp.Diff([]string{"example.org/foreign"}, copied.Finalizers); diff != "" {
			t.Errorf("finalizers (-want +got)\n%s", diff)
		}
		if copied.DeletionTimestamp == nil || copied.Annotations[common.AnnotationKeyAppSkipReconcile] != "true" {
			t.Errorf("deleted %v, annotations %v", copied.DeletionTimestamp, copied.Annotations)
		}
	})
}

// TestKeysThatNeverTravel names Argo CD's own keys by its constants.
func TestKeysThatNeverTravel(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		app := guestbook(agentName)
		app.Annotations = map[string]string{
			v1alpha1.AnnotationKeyHydrate:               "normal",
			common.AnnotationKeyAppInstance:             "guestbook:/Namespace:/x",
			"notified.notifications.argoproj.io":        "{}",
			v1alpha1.AnnotationKeyManifestGeneratePaths: ".",
		}
		w.put(w.hub, appKey(agentName), app)
		w.settle()
		copied := w.app(w.spoke, argocd)
		for key := range app.Annotations {
			_, got := copied.Annotations[key]
			if want := key == v1alpha1.AnnotationKeyManifestGeneratePaths; got != want {
				t.Errorf("annotation %s travels: %t, want %t", key, got, want)
			}
		}
	})
}

func TestRefresh(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		app := guestbook(agentName)
		app.Annotations = map[string]string{v1alpha1.AnnotationKeyRefresh: string(v1alpha1.RefreshTypeHard)}
		w.put(w.hub, appKey(agentName), app)
		w.settle()
		copied := w.app(w.spoke, argocd)
		if refresh, ok := copied.IsRefreshRequested(); !ok || refresh != v1alpha1.RefreshTypeHard {
			t.Fatalf("IsRefreshRequested() = %v, %t", refresh, ok)
		}
		delete(copied.Annotations, v1alpha1.AnnotationKeyRefresh)
		copied.Status.ReconciledAt = &metav1.Time{Time: time.Now()}
		w.put(w.spoke, appKey(argocd), copied)
		w.settle()
		if _, ok := w.app(w.hub, agentName).IsRefreshRequested(); ok {
			t.Error("the hub still asks for the refresh")
		}
	})
}

// status is one with many fields.
func status() v1alpha1.ApplicationStatus {
	at := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return v1alpha1.ApplicationStatus{
		Resources: []v1alpha1.ResourceStatus{{
			Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "web", Name: "x", Status: v1alpha1.SyncStatusCodeSynced,
			Health: &v1alpha1.HealthStatus{Status: health.HealthStatusHealthy}, SyncWave: 3,
		}},
		Sync: v1alpha1.SyncStatus{
			Status: v1alpha1.SyncStatusCodeSynced, Revisions: []string{"abc"},
			ComparedTo: v1alpha1.ComparedTo{Destination: v1alpha1.ApplicationDestination{Name: "in-cluster"}},
		},
		Health:       v1alpha1.AppHealthStatus{Status: health.HealthStatusHealthy, LastTransitionTime: &at},
		History:      v1alpha1.RevisionHistories{{ID: 7, Revision: "abc", DeployedAt: at, InitiatedBy: v1alpha1.OperationInitiator{Automated: true}}},
		Conditions:   []v1alpha1.ApplicationCondition{{Type: v1alpha1.ApplicationConditionSyncError, Message: "m", LastTransitionTime: &at}},
		ReconciledAt: &at,
		OperationState: &v1alpha1.OperationState{
			Operation: v1alpha1.Operation{Sync: &v1alpha1.SyncOperation{Revision: "abc", Prune: true}},
			Phase:     synccommon.OperationSucceeded, StartedAt: at, FinishedAt: &at, RetryCount: 2,
			SyncResult: &v1alpha1.SyncOperationResult{Revision: "abc", Resources: v1alpha1.ResourceResults{{Kind: "Deployment", Name: "x", HookPhase: synccommon.OperationSucceeded}}},
		},
		SourceTypes:         []v1alpha1.ApplicationSourceType{v1alpha1.ApplicationSourceTypeHelm},
		Summary:             v1alpha1.ApplicationSummary{Images: []string{"a:1"}, ExternalURLs: []string{"https://x"}},
		ControllerNamespace: argocd,
	}
}

func TestStatusArrivesWithoutLoss(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		w.put(w.hub, appKey(agentName), guestbook(agentName))
		w.settle()
		copied := w.app(w.spoke, argocd)
		copied.Status = status()
		w.put(w.spoke, appKey(argocd), copied)
		w.settle()
		if diff := cmp.Diff(copied.Status, w.app(w.hub, agentName).Status); diff != "" {
			t.Errorf("status on the hub (-spoke +hub)\n%s", diff)
		}
	})
}

// TestErrorCondition checks the only condition we write.
func TestErrorCondition(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		app := guestbook(agentName)
		app.Spec.Destination.Name = "edge-2"
		w.put(w.hub, appKey(agentName), app)
		w.settle()
		app = w.app(w.hub, agentName)
		if len(app.Status.Conditions) != 1 {
			t.Fatalf("conditions %v", app.Status.Conditions)
		}
		c := app.Status.Conditions[0]
		if c.Type != "ArgomeshError" || c.Message == "" || c.LastTransitionTime.IsZero() {
			t.Errorf("condition %+v", c)
		}
		if !c.IsError() {
			t.Error("Argo CD does not show the condition as an error")
		}
	})
}

// TestOperation follows an operation in Argo CD's terms, in each phase in which
// the spoke may show it.
func TestOperation(t *testing.T) {
	phases := []synccommon.OperationPhase{
		synccommon.OperationRunning, synccommon.OperationTerminating, synccommon.OperationFailed, synccommon.OperationError, synccommon.OperationSucceeded,
	}
	for _, phase := range phases {
		t.Run(string(phase), func(t *testing.T) {
			run(t, stream.Managed, func(w *linkEnv) {
				app := guestbook(agentName)
				app.Operation = &v1alpha1.Operation{
					Sync:        &v1alpha1.SyncOperation{Revision: "HEAD", Prune: true, SyncOptions: v1alpha1.SyncOptions{"Replace=true"}},
					InitiatedBy: v1alpha1.OperationInitiator{Username: "ann"},
					Info:        []*v1alpha1.Info{{Name: "Reason", Value: "because"}},
					Retry:       v1alpha1.RetryStrategy{Limit: 2},
				}
				w.put(w.hub, appKey(agentName), app)
				w.settle()

				hub := w.app(w.hub, agentName)
				invented := hub.Status.OperationState
				if invented == nil || !invented.Phase.Running() || invented.StartedAt.IsZero() || invented.FinishedAt != nil {
					t.Fatalf("the state we invent is %+v", invented)
				}
				if diff := cmp.Diff(hub.Operation, &invented.Operation); diff != "" {
					t.Errorf("the operation in the state we invent (-want +got)\n%s", diff)
				}
				copied := w.app(w.spoke, argocd)
				if diff := cmp.Diff(hub.Operation, copied.Operation); diff != "" {
					t.Fatalf("the operation on the spoke (-hub +spoke)\n%s", diff)
				}
				if diff := cmp.Diff(app.Operation.Sync, copied.Operation.Sync); diff != "" {
					t.Errorf("what is asked of the spoke (-asked +got)\n%s", diff)
				}

				at := metav1.NewTime(time.Now().Truncate(time.Second))
				copied.Status.OperationState = &v1alpha1.OperationState{Operation: *copied.Operation, Phase: phase, StartedAt: at, Message: "m"}
				// A retry has finishedAt too, so each phase gets it.
				copied.Status.OperationState.FinishedAt = &at
				if phase.Completed() {
					copied.Operation = nil
				}
				w.put(w.spoke, appKey(argocd), copied)
				w.settle()
				hub = w.app(w.hub, agentName)
				if (hub.Operation == nil) != phase.Completed() {
					t.Errorf("operation on the hub %v, Argo CD takes %s for completed: %t", hub.Operation, phase, phase.Completed())
				}
				if diff := cmp.Diff(copied.Status.OperationState, hub.Status.OperationState); diff != "" {
					t.Errorf("operationState on the hub (-spoke +hub)\n%s", diff)
				}
			})
		})
	}
}

// TestOperationThatTheSpokeRefuses checks the state in which it ends.
func TestOperationThatTheSpokeRefuses(t *testing.T) {
	run(t, stream.Managed, func(w *linkEnv) {
		app := guestbook(agentName)
		w.put(w.hub, appKey(agentName), app)
		w.settle()
		// Another operation is in progress on the spoke, so the command stays sent
		// while the copy is made again.
		copied := w.app(w.spoke, argocd)
		copied.Operation = &v1alpha1.Operation{Sync: &v1alpha1.SyncOperation{}}
		w.put(w.spoke, appKey(argocd), copied)
		app = w.app(w.hub, agentName)
		app.Operation = &v1alpha1.Operation{Sync: &v1alpha1.SyncOperation{Revision: "HEAD"}}
		w.put(w.hub, appKey(agentName), app)
		w.settle()
		app = w.app(w.hub, agentName)
		app.Spec.Info = nil // a later revision, from which the copy is made again
		w.put(w.hub, appKey(agentName), app)
		w.settle()
		w.remove(w.spoke, appKey(argocd))
		<-time.After(time.Minute)
		w.settle()
		app = w.app(w.hub, agentName)
		s := app.Status.OperationState
		if app.Operation != nil || s == nil || s.Phase != synccommon.OperationError || s.FinishedAt.IsZero() || s.Message == "" {
			t.Errorf("operation %v, state %+v", app.Operation, s)
		}
		if w.app(w.spoke, argocd).Operation != nil {
			t.Error("the spoke started it")
		}
	})
}
