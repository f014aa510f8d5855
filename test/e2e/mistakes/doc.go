// Package mistakes tests end to end: each row of docs/reference/mistakes.md: the mistake is made, its text awaited where a person looks, and the cure followed to the letter.
//
// README.md tells what it runs on.
package mistakes
