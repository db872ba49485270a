"""Kafka's wire protocol: conversion between bytes and Python values. Uses no socket, file or clock."""
