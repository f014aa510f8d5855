package controller

import (
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/kube/collection"
)

// valueOf returns what a collection keeps of objects: their Go type. One that does not fit is
// left out, so that it does not stop the others.
func valueOf[T any](log zerolog.Logger, kind string,
	convert func(*unstructured.Unstructured) (T, error)) func(*unstructured.Unstructured) (T, bool, error) {
	return func(raw *unstructured.Unstructured) (T, bool, error) {
		object, err := convert(raw)
		if err != nil {
			log.Error().Err(err).Str("resource", kind+" "+raw.GetName()).Msg("object cannot be read")
		}
		return object, true, err
	}
}

// readable says once that the API server is away and once that it is back.
func readable(log zerolog.Logger, kind string) func(error) {
	return func(err error) {
		if err != nil {
			log.Warn().Err(err).Str("kind", kind).Msg("objects of the hub cannot be read, retrying")
		} else {
			log.Info().Str("kind", kind).Msg("objects of the hub can be read again")
		}
	}
}

// each calls changed with every state that an object had or has.
func each[T any](changed func(T)) func([]collection.Change[T]) {
	return func(changes []collection.Change[T]) {
		for _, c := range changes {
			if c.Had {
				changed(c.Before)
			}
			if c.Has {
				changed(c.After)
			}
		}
	}
}

// toAgent returns what is needed of an Agent.
func toAgent(raw *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	agent := &v1alpha1.Agent{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, agent)
	agent.ManagedFields = nil
	return agent, err
}

// toSecret returns a Secret with its managed fields, which tell what is ours.
func toSecret(raw *unstructured.Unstructured) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, secret)
	return secret, err
}
